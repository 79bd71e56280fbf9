"""Real clients against a real `penstock limiter` on loopback, in front of the stand-in for vLLM.

    make e2e-clients            all clients, all scenes
    python -m e2e.clients -k "curl and full"

What an SDK makes of a refusal is part of what a refusal means: which exception is raised, whether the request is sent
again, and when. So nothing here imitates a client. `table` says what each one surfaces in each scene, and reads as
documentation; `scenes` brings the scene about; `programs` are small resident applications, one per client library, that
do one request per line of input and say what they saw; `tap` sits between client and limiter in the scenes about
retries and notes what really went over the wire and when.
"""
