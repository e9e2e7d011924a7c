//! Ctrl-C: ends the writing of text cleanly, and anything else at once.

use anyhow::Context;
use std::sync::atomic::{AtomicBool, Ordering};

static WRITING: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);

/// Listens. Outside of [`writing`], and at the second time, the process ends with 130.
pub(crate) fn listen() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        let again = ASKED.swap(true, Ordering::SeqCst);
        if again || !WRITING.load(Ordering::SeqCst) {
            std::process::exit(130);
        }
    })
    .context("cannot listen for Ctrl-C")
}

/// From now on an interrupt is only noted.
pub(crate) fn writing() {
    WRITING.store(true, Ordering::SeqCst);
}

/// What was written has ended: a later interrupt is a first one again, and ends the process.
pub(crate) fn ended() {
    WRITING.store(false, Ordering::SeqCst);
    ASKED.store(false, Ordering::SeqCst);
}

/// Whether there was one.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}
