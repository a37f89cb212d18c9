"""What every device and every operator shares: signed texts, enrolment, revocation, tags, lots, secrets."""

__all__: list[str] = []
