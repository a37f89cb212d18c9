"""The protocol that all devices and operators share: signed texts, enrolment, revocation, tags, secrets."""

__all__: list[str] = []
