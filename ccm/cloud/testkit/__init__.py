"""The conformance kit for provider authors: `pytest --pyargs ccm.cloud.testkit --provider mine`."""
