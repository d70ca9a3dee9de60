"""`python -m ccm.sandbox.kubernetes`."""

from ccm.sandbox.kubernetes.process import main

if __name__ == "__main__":
    main()
