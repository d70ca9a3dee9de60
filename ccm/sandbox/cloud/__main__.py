"""`python -m ccm.sandbox.cloud`."""

from ccm.sandbox.cloud.process import main

if __name__ == "__main__":
    main()
