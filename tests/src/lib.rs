//! The programs of the README compile.

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
