package main

import (
	"fmt"
	"strings"
)

// Histograms of an engine's metrics page, with as many buckets each as a real one has on average.
var engineHistograms = []string{
	"time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds",
	"e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds",
	"request_prefill_time_seconds", "request_decode_time_seconds", "iteration_tokens_total", "request_prompt_tokens",
	"request_generation_tokens", "request_max_num_generation_tokens", "request_params_max_tokens",
	"request_prefill_kv_computed_tokens", "request_num_preemptions", "request_params_n",
}

const engineHistogramBuckets = 24

// engineMetrics is a page of the size (about 50 KB) and shape that a real engine shows, because a limiter polls it once
// a second and what that costs is part of what it costs.
func engineMetrics() string {
	var page strings.Builder
	const labels = `engine="0",model_name="bench"`
	for _, name := range []string{"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"} {
		fmt.Fprintf(&page, "# HELP vllm:%s Value now.\n# TYPE vllm:%s gauge\nvllm:%s{%s} 0.0\n", name, name, name, labels)
	}
	for _, name := range []string{"prompt_tokens", "generation_tokens", "num_preemptions", "request_success"} {
		fmt.Fprintf(&page, "# HELP vllm:%s Counted since the start.\n# TYPE vllm:%s counter\n", name, name)
		fmt.Fprintf(&page, "vllm:%s_total{%s} 1024.0\nvllm:%s_created{%s} 1.795973169e+09\n", name, labels, name, labels)
	}
	for _, name := range engineHistograms {
		fmt.Fprintf(&page, "# HELP vllm:%s Distribution since the start.\n# TYPE vllm:%s histogram\n", name, name)
		bound := 0.001
		for range engineHistogramBuckets {
			fmt.Fprintf(&page, "vllm:%s_bucket{%s,le=\"%g\"} 512.0\n", name, labels, bound)
			bound *= 2
		}
		fmt.Fprintf(&page, "vllm:%s_bucket{%s,le=\"+Inf\"} 512.0\n", name, labels)
		fmt.Fprintf(&page, "vllm:%s_count{%s} 512.0\nvllm:%s_sum{%s} 128.5\n", name, labels, name, labels)
	}
	return page.String()
}
