"""Everything that computes with torch: model, loss, optimizer, ranks."""
