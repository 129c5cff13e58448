//! A broker in the process.
