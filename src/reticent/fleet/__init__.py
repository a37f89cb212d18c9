"""What every device and every operator shares: signed texts, enrolment, revocation, tags, lots, secrets."""
