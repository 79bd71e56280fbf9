"""One streamed chat completion, printed token by token as it arrives. Runs in the cluster's network.

Usage: python -m e2e.demo.chat URL MODEL PROMPT
"""

from __future__ import annotations

import sys

import openai


def main(url: str, model: str, prompt: str) -> int:
    """Stream one answer to standard output; return the exit status."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=120)
    try:
        stream = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": prompt}], max_tokens=80, temperature=0, stream=True
        )
        for chunk in stream:
            if chunk.choices:
                print(chunk.choices[0].delta.content or "", end="", flush=True)
    except openai.APIError as error:
        print(f"the backend refused: {error}", file=sys.stderr)
        return 1
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
