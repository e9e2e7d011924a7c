//! Times plans, for `explain --analyze`.

use crate::engine::{open_model, open_runtime};
use crate::explain;
use crate::explain_args::ExplainArgs;
use crate::progress::tell;
use warploom::plan::{Analysis, Plan};
use warploom::runtime::{AnalyzeOptions, DeviceTensors};
use warploom_core::base::SymbolValues;
use warploom_llm::{PAST, SEQ, Session};

/// Runs a plan on the device and times its steps. The weights are those of the model; for a saved
/// plan or graph without a model, they are zeros.
pub(crate) fn analyze(args: &ExplainArgs, plan: &Plan) -> anyhow::Result<Analysis> {
    let runtime = open_runtime(&args.place)?;
    tell(&runtime.startup_line());
    let model = match (&args.plan, &args.graph_file, &args.place.model) {
        (None, None, _) | (Some(_), None, Some(_)) => Some(open_model(&args.place)?),
        _ => None,
    };
    let (mut session, mut zeros);
    let mut each = None;
    let resident = match model {
        Some(model) => {
            let context = explain::context(args, model.config().context);
            let (input, sequences) = explain::sequences(args.phase);
            session = Session::builder(model)
                .runtime(runtime.clone())
                .context(context)
                .compute(args.place.compute)
                .cache(args.place.cache)
                .deterministic(args.place.deterministic)
                .sequences(sequences)
                .build()?;
            if input.is_batch() {
                each = Some(session.inputs_of_full_sequences());
            }
            session.device_tensors()
        }
        None => {
            tell("weights, states and inputs are zeros");
            zeros = DeviceTensors::zeros(runtime.pool(), &**runtime.device(), plan)?;
            &mut zeros
        }
    };
    let symbols = full(plan);
    let inputs = match each {
        Some(inputs) => inputs,
        None => zeros_for(plan, &symbols)?,
    };
    let options = AnalyzeOptions { runs: args.runs, ..AnalyzeOptions::default() };
    Ok(runtime.analyze(plan, resident, &symbols, &inputs, &options)?)
}

/// Returns the inputs of a plan, filled with zeros.
pub(crate) fn zeros_for(plan: &Plan, symbols: &SymbolValues) -> anyhow::Result<Vec<Vec<u8>>> {
    let inputs = plan.inputs.iter().map(|input| {
        let bytes = input.shape.elements().eval_size(symbols)? * input.dtype.bytes();
        Ok(vec![0; usize::try_from(bytes)?])
    });
    inputs.collect()
}

/// Returns every symbol at its upper end; `past` is reduced so that the run's tokens also fit in
/// the cache.
fn full(plan: &Plan) -> SymbolValues {
    let mut values = SymbolValues::new();
    for (symbol, _, high) in plan.class.ranges() {
        values.set(*symbol, *high);
    }
    if let (Some(seq), Some(past)) = (values.get(SEQ), values.get(PAST)) {
        values.set(PAST, past.saturating_sub(seq));
    }
    values
}
