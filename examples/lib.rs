//! Example programs for warploom, one per file of this folder. Run one with
//! `cargo run --example tensor`.
//!
//! The programs of the guide (`docs/guide`) are doc tests here, because this package depends on
//! every crate that they use and is not published.

#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../docs/guide/tensors.md")]
    struct Tensors;

    #[doc = include_str!("../docs/guide/laziness.md")]
    struct Laziness;

    #[doc = include_str!("../docs/guide/graphs.md")]
    struct Graphs;

    #[doc = include_str!("../docs/guide/gradients.md")]
    struct Gradients;

    #[doc = include_str!("../docs/guide/kernels.md")]
    struct Kernels;

    #[doc = include_str!("../docs/guide/language-models.md")]
    struct LanguageModels;

    #[doc = include_str!("../docs/guide/web.md")]
    struct Web;

    #[doc = include_str!("../docs/guide/embedding.md")]
    struct Embedding;
}
