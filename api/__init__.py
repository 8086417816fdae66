"""Ring 3: HTTP. It speaks to workflows only through `turnkeeper.client`."""
