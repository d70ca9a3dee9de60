"""Providers that start, name or end themselves wrongly."""

from .mutant import Mutant

PROVIDER = (
    Mutant(
        "a start writes to the cloud",
        "provider.py",
        "        cluster = context.cluster_name\n",
        "        cluster = context.cluster_name\n"
        "        connect(account).request('CreatePools', id='hello', hosts=[], tags={})\n",
        "provider::test_starting_it_writes_nothing_to_the_cloud",
    ),
    Mutant(
        "a configuration that is not understood is a stack trace",
        "provider.py",
        "except (ValueError, TypeError, AttributeError) as wrong:",
        "except ZeroDivisionError as wrong:",
        "provider::test_a_configuration_it_cannot_use_is_told_as_faults",
    ),
    Mutant(
        "it goes by another name",
        "provider.py",
        'self.name = "mutant"',
        'self.name = "other"',
        "provider::test_it_has_a_name_and_a_scheme_of_its_own",
    ),
    Mutant(
        "a quota allows no call",
        "provider.py",
        "burst=10",
        "burst=0",
        "provider::test_it_declares_what_the_cloud_allows",
    ),
    Mutant(
        "it can be ended once",
        "provider.py",
        '        """There is nothing to give back."""\n',
        "        del self.name\n",
        "provider::test_it_can_be_closed_twice_and_started_again",
    ),
)
