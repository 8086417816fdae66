"""Ring 2: side effects. Author code and model calls happen here."""
