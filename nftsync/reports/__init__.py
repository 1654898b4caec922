"""What commands show and write: status, evidence, exports, checks."""
