"""One suite of requests, run against real vLLM and against its stand-in, and what it means for two answers to be equal.

`recorded/` holds the answers of real vLLM 0.32 (CPU, the made-up model of `e2e.fakevllm.model`) in normal form.
`python -m e2e.conformance check --target fakevllm` compares the stand-in with them; `--target vllm` compares a fresh
run of real vLLM with its own recording, which shows that a recording is no accident; `record` writes them anew.

**Equal** means, answer by answer:

* the status, the headers content-type, allow, vary and server, and whether the body is counted or chunked;
* the JSON body, field by field: a field with null differs from an absent one, numbers from texts, lists in length;
* every error's message, type, param and code, to the letter;
* usage numbers, finish reasons, stop reasons, token counts, the prompt's token ids, model names, limits;
* of a stream, the order of its events and each event's fields. A run of events that look the same in normal form
  counts as one, because how many tokens an event carries depends on timing.

**Not compared** is what two servers with different weights cannot share: ids and timestamps (only their form is),
generated text and token ids (only that there is a text, and how many ids), log probabilities and ranks, the hash in
`system_fingerprint`, the help texts and values of metrics (names, types, labels and buckets are), the labels of
`cache_config_info` other than those the stand-in has, and the order of fields in an object. Where a request forces the
text (a logit bias of 100, or only the prompt echoed), the case says `exact` and the text is compared too.

Besides requests there are *laws* (`laws.py`): statements about any server, checked with prompts made up on the spot, so
that a replayer of recordings fails; and *scenes* (`scenes.py`): what happens to many requests at once, under KV
pressure, with a full queue, and at shutdown.
"""
