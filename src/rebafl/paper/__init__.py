"""Do the paper's claims hold? Its tables and figures as data, run cell by cell, our numbers beside its own."""
