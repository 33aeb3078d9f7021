//! Nothing: this package is for its tests, with a lock file of its own.
