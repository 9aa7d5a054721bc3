"""Pictures of a store's history: SVG and HTML that open anywhere, offline, made with the standard library."""
