"""How hypothesis runs here: no time limit per example, because the machine may be busy."""

from hypothesis import settings

settings.register_profile("shuffle_transport", deadline=None)
settings.load_profile("shuffle_transport")
