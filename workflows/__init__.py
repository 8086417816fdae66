"""Ring 1: durable orchestration. Everything here is deterministic and knows agents only by name."""
