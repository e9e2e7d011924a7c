//! Ctrl-C, a hangup and the wish to terminate: they end the writing of text or of a file cleanly, and
//! anything else at once.

use anyhow::Context;
use std::sync::atomic::{AtomicBool, Ordering};

static WRITING: AtomicBool = AtomicBool::new(false);
static ASKED: AtomicBool = AtomicBool::new(false);

/// Listens. Outside of [`writing`], and at the second time, the process ends with 130.
pub(crate) fn listen() -> anyhow::Result<()> {
    #[cfg(unix)]
    let ignored = ignore_hangup();
    ctrlc::set_handler(|| {
        let again = ASKED.swap(true, Ordering::SeqCst);
        if again || !WRITING.load(Ordering::SeqCst) {
            std::process::exit(130);
        }
    })
    .context("cannot listen for Ctrl-C")?;
    // What `nohup` started goes on.
    #[cfg(unix)]
    if ignored {
        ignore_hangup();
    }
    Ok(())
}

/// Ignores hangups; whether they were ignored before.
#[cfg(unix)]
fn ignore_hangup() -> bool {
    // SAFETY: a signal that is ignored runs no code, and SIGHUP may be ignored.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) == libc::SIG_IGN }
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
