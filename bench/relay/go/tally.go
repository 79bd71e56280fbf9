package main

import (
	"errors"
	"math"
	"slices"
	"time"
)

// outcome says how a stream ended. Only complete streams are right: the others are the proxy's loss.
type outcome string

const (
	outcomeComplete outcome = "complete"
	outcomeRefused  outcome = "refused" // no 200
	outcomeShort    outcome = "short"   // ended, broke or stalled before its end mark
	outcomeCorrupt  outcome = "corrupt" // brought bytes that are not the ones the backend wrote
)

type failure struct {
	outcome outcome
	cause   error
}

func (f failure) Error() string { return f.cause.Error() }
func (f failure) Unwrap() error { return f.cause }

func classify(err error) (outcome, string) {
	if err == nil {
		return outcomeComplete, ""
	}
	var known failure
	if errors.As(err, &known) {
		return known.outcome, err.Error()
	}
	return outcomeShort, err.Error()
}

// observation is what one stream showed. The lists hold microseconds of events inside the measured time only.
type observation struct {
	outcome   outcome
	reason    string
	measured  bool // started inside the measured time
	startLate time.Duration
	firstByte time.Duration
	delays    []int32
	ticksLate []int32
}

// tally adds observations up. Outcomes count for every stream, warm-up included; times for measured ones.
type tally struct {
	outcomes  map[outcome]int
	reasons   []string
	starts    []int32
	firsts    []int32
	delays    []int32
	ticksLate []int32
}

func (t *tally) add(seen *observation) {
	if t.outcomes == nil {
		t.outcomes = map[outcome]int{}
	}
	t.outcomes[seen.outcome]++
	if seen.reason != "" && len(t.reasons) < reasonsReported {
		t.reasons = append(t.reasons, string(seen.outcome)+": "+seen.reason)
	}
	if seen.measured {
		t.starts = append(t.starts, microseconds(seen.startLate))
		if seen.firstByte > 0 {
			t.firsts = append(t.firsts, microseconds(seen.firstByte))
		}
	}
	t.delays = append(t.delays, seen.delays...)
	t.ticksLate = append(t.ticksLate, seen.ticksLate...)
}

// result is the last line of the load side; every time is in milliseconds.
func (t *tally) result() map[string]any {
	return map[string]any{
		"event":             "result",
		"complete":          t.outcomes[outcomeComplete],
		"refused":           t.outcomes[outcomeRefused],
		"short":             t.outcomes[outcomeShort],
		"corrupt":           t.outcomes[outcomeCorrupt],
		"reasons":           t.reasons,
		"first_byte_count":  len(t.firsts),
		"first_byte_p50_ms": percentile(t.firsts, 0.50),
		"first_byte_p99_ms": percentile(t.firsts, 0.99),
		"delay_p50_ms":      percentile(t.delays, 0.50),
		"delay_p99_ms":      percentile(t.delays, 0.99),
		"start_late_p99_ms": percentile(t.starts, 0.99),
		"tick_late_p99_ms":  percentile(t.ticksLate, 0.99),
	}
}

// percentile sorts the values and returns the nearest-rank percentile in milliseconds, 0 without values.
func percentile(values []int32, rank float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	at := int(math.Ceil(rank*float64(len(values)))) - 1
	return float64(values[max(at, 0)]) / 1000
}

func microseconds(duration time.Duration) int32 {
	return int32(min(duration.Microseconds(), math.MaxInt32))
}
