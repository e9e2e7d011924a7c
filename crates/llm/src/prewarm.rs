//! Prewarming: plans of the first text, made and compiled on a thread while weights are uploaded.

use super::decoder::{CacheShape, Run, Wanted};
use super::model::Model;
use super::session::Kind;
use super::shape_buckets::{CLASSES, class_index, class_of_kind};
use super::weights::Weight;
use warploom::base::{ComputeMode, ShapeClass};
use warploom::error::Result;
use warploom::ir::{Graph, computing_in};
use warploom::plan::Plan;
use warploom::provider::{DeviceKind, DeviceProfile};
use warploom::runtime::Runtime;

/// The shape of the first text of a new session. It changes no result: if correct, the first token
/// comes sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Tokens of its prompt.
    pub tokens: usize,
    /// The output after the prompt and after each later token:
    /// [`Sampling::wanted`](super::Sampling::wanted).
    pub wanted: Wanted,
}

impl Expected {
    /// The plans of such a text: for its prompt, and for later tokens if that is a different plan.
    fn kinds(&self, profile: &DeviceProfile) -> (Vec<Kind>, Option<Kind>) {
        let one = |tokens: usize, wanted| {
            let class = class_index(tokens).ok()?;
            Some(Kind { run: Run::One, class, wanted })
        };
        let most = CLASSES[3].1;
        let last = self.tokens.saturating_sub(1) % most + 1;
        let early = (self.tokens > most).then(|| one(most, Wanted::Cache)).flatten();
        let next = match self.wanted.is_token() && profile.kind != DeviceKind::Cpu {
            true => Some(Kind { run: Run::Ahead, class: 0, wanted: self.wanted }),
            false => one(1, self.wanted),
        };
        let prompt: Vec<Kind> = [early, one(last, self.wanted)].into_iter().flatten().collect();
        let next = next.filter(|next| !prompt.contains(next));
        (prompt, next)
    }
}

/// The inputs from which the plans of a session are made.
pub(super) struct Planner<'a> {
    pub(super) runtime: &'a Runtime,
    pub(super) model: &'a Model,
    pub(super) weights: &'a [Weight],
    pub(super) cache: CacheShape,
    pub(super) mode: ComputeMode,
    pub(super) deterministic: bool,
}

/// A plan of a kind, and its graph.
pub(super) struct Ready {
    pub(super) kind: Kind,
    pub(super) graph: Graph,
    pub(super) plan: Plan,
}

impl Planner<'_> {
    /// The graph of a run.
    pub(super) fn graph(&self, run: Run, wanted: Wanted) -> Result<Graph> {
        computing_in(&self.model.graph_with(self.weights, self.cache, run, wanted)?, self.mode)
    }

    /// Its plan for a shape bucket.
    pub(super) fn plan(&self, graph: &Graph, class: &ShapeClass) -> Result<Plan> {
        let mut options = self.runtime.plan_options();
        options.deterministic |= self.deterministic;
        Plan::new(graph, class, self.runtime.device().profile(), &options)
    }

    /// Does `work` on this thread, and on another makes plans for the expected text and compiles
    /// their kernels. Errors there are ignored: the plan is made again on first use.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn beside<T>(
        &self,
        expected: Option<Expected>,
        work: impl FnOnce() -> T,
    ) -> (T, Vec<Ready>) {
        // A search must have the device to itself for its measurements.
        let expected = expected.filter(|_| !self.runtime.searches_at_first_use());
        let Some(expected) = expected else { return (work(), Vec::new()) };
        std::thread::scope(|scope| {
            let plans = || self.ready(expected);
            let thread = std::thread::Builder::new().name("warploom-plans".into());
            let thread = thread.spawn_scoped(scope, plans);
            let done = work();
            let plans = thread.ok().and_then(|thread| thread.join().ok());
            (done, plans.unwrap_or_default())
        })
    }

    /// A browser page has one thread.
    #[cfg(target_arch = "wasm32")]
    pub(super) fn beside<T>(
        &self,
        _: Option<Expected>,
        work: impl FnOnce() -> T,
    ) -> (T, Vec<Ready>) {
        (work(), Vec::new())
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn ready(&self, expected: Expected) -> Vec<Ready> {
        let device = self.runtime.device();
        let (prompt, next) = expected.kinds(device.profile());
        let made = |kind: Kind| -> Result<Ready> {
            let graph = self.graph(kind.run, kind.wanted)?;
            let plan = self.plan(&graph, &class_of_kind(kind, self.cache))?;
            Ok(Ready { kind, graph, plan })
        };
        let mut ready: Vec<Ready> = prompt.into_iter().flat_map(made).collect();
        // Only the kernels of the first token: with cold caches it would wait for the others, too.
        let kernels = ready.iter().flat_map(|ready| ready.plan.recording.kernels.clone());
        let kernels: Vec<_> = kernels.collect();
        let compiling: Vec<_> = kernels.iter().map(|kernel| device.compile(kernel)).collect();
        ready.extend(next.map(made).into_iter().flatten());
        for compiled in compiling {
            let _ = warploom::base::platform::block_on(compiled);
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warploom::provider::NullProvider;
    use warploom::provider::OpenOptions;

    #[test]
    fn a_text_takes_a_plan_for_each_class_that_its_runs_fall_in() {
        let gpu = NullProvider::device(&OpenOptions::default()).profile().clone();
        let cpu = gpu.clone().with(|p| p.kind = DeviceKind::Cpu);
        let kinds = |tokens, wanted, profile: &DeviceProfile| {
            let (prompt, next) = Expected { tokens, wanted }.kinds(profile);
            prompt
                .iter()
                .chain(&next)
                .map(|kind| (kind.run, kind.class, kind.wanted))
                .collect::<Vec<_>>()
        };
        let ahead = |wanted| (Run::Ahead, 0, wanted);
        assert_eq!(
            kinds(16, Wanted::Drawn, &gpu),
            [(Run::One, 2, Wanted::Drawn), ahead(Wanted::Drawn)]
        );
        assert_eq!(
            kinds(1, Wanted::Token, &gpu),
            [(Run::One, 0, Wanted::Token), ahead(Wanted::Token)]
        );
        // If the host chooses, or nothing runs ahead, one plan serves both.
        assert_eq!(kinds(1, Wanted::Logits, &gpu), [(Run::One, 0, Wanted::Logits)]);
        assert_eq!(kinds(1, Wanted::Token, &cpu), [(Run::One, 0, Wanted::Token)]);
        assert_eq!(
            kinds(1024 + 9, Wanted::Token, &gpu),
            [(Run::One, 3, Wanted::Cache), (Run::One, 2, Wanted::Token), ahead(Wanted::Token)]
        );
        assert_eq!(kinds(512, Wanted::Token, &gpu)[0], (Run::One, 3, Wanted::Token));
    }
}
