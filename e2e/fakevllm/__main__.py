"""`python -m e2e.fakevllm serve MODEL [flags]`."""

from e2e.fakevllm.cli import main

if __name__ == "__main__":
    main()
