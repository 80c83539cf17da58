//! Shared machinery of the test suites.
