"""Imports what a broker imports, for `forked_command`."""

from tests.proof.warm import import_everything

import_everything()
