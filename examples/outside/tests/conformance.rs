//! Runs warploom's conformance suite on this crate's engine and provider.

use std::sync::Arc;

use warploom::{Result, Runtime};
use warploom_outside::{Counted, Gelu};
use warploom_testkit::Conformance;
use warploom_testkit::faults::{EngineFault, FaultyEngine};

#[test]
fn the_engine_is_right() -> Result<()> {
    let runtime = Runtime::auto()?;
    Conformance::new().engine(Arc::new(Gelu::default())).run(&runtime)?.assert_passed();
    Ok(())
}

#[test]
fn the_provider_is_right() -> Result<()> {
    let provider = Counted::new(warploom::cpu::Provider);
    Conformance::new().run_provider(&provider)?.assert_passed();
    assert!(provider.bytes() > 0);
    Ok(())
}

/// Checks that the suite reports broken engines.
#[test]
fn a_broken_engine_does_not_pass() -> Result<()> {
    let runtime = Runtime::auto()?;
    for fault in [EngineFault::WrongElement, EngineFault::NotANumber, EngineFault::KernelLeftOut] {
        let broken = Arc::new(FaultyEngine::new(Arc::new(Gelu::default()), fault));
        let report = Conformance::new().engine(broken).only("unary/").run(&runtime)?;
        assert!(!report.passed(), "{fault:?} passed:\n{report}");
    }
    Ok(())
}
