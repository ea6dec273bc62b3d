"""Which method was best where? What the result files say of it, and which of them are near a user's own setting."""
