//! The options of `warploom explain`.

use crate::args::Place;
use crate::explain::symbol;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use warploom::engine::EngineId;
use warploom::plan::Selector;
use warploom_core::base::Symbol;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warploom explain                                        # one token of the embedded model
  warploom explain -m model.gguf --phase prefill --profile apple-m2
  warploom explain --analyze --trace run.json             # times each step; open it in Perfetto
  warploom explain --analyze --json > plan.json
  warploom explain --graph dot --after simplify | dot -Tsvg > graph.svg
  warploom explain --graph-file net.json --symbols batch=1..8
  warploom explain --without simplify --engine catalogue.attn_decode
  warploom explain --engine wgsl.matvec.q4_k --knob wgsl.matvec.q4_k:rows=4 --block fused.rows
  warploom explain --profile adreno-740 --save-plan phone.plan
  warploom explain --plan phone.plan --arena
  warploom explain --with-device cpu-avx512 --place-nodes op:gather=1   # on two devices

Built-in device profiles: apple-m2, radeon-rx-7900-xtx, intel-iris-xe, adreno-740, browser-floor,
nvidia-h200, lavapipe, cpu-avx512. `warploom devices --save-profile FILE` writes the profile of a
device of this machine.")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Which run of the model to explain: one token, a chunk of a prompt, or one token for each of
    /// several sequences
    #[arg(long, value_enum, default_value = "decode")]
    pub(crate) phase: Phase,
    /// Plan for a device profile instead of a device of this machine: a file, or a built-in name
    /// listed below
    #[arg(long, value_name = "FILE|NAME")]
    pub(crate) profile: Option<String>,
    /// Split the plan with another device: a profile file, or a built-in name listed below; can be
    /// repeated. The main device is slot 0, further ones are slots 1, 2 and so on
    #[arg(
        long,
        value_name = "FILE|NAME",
        conflicts_with_all = ["analyze", "json", "graph", "plan", "arena", "all", "no_why"]
    )]
    pub(crate) with_device: Vec<String>,
    /// Assign nodes, selected by label, id or operation, to a device slot: blk.0.attention=1,
    /// %12=1, op:gather=1; can be repeated
    #[arg(
        long,
        value_name = "NODES=SLOT",
        requires = "with_device",
        value_parser = crate::explain::placed
    )]
    pub(crate) place_nodes: Vec<(Selector, usize)>,
    /// Run the plan on the device and show the time of each step
    #[arg(long)]
    pub(crate) analyze: bool,
    /// Number of timed runs for --analyze
    #[arg(long, value_name = "N", default_value = "20", value_parser = crate::args::at_least_one)]
    pub(crate) runs: usize,
    /// Write the times as a trace file for Perfetto or Chrome
    #[arg(long, value_name = "FILE", requires = "analyze")]
    pub(crate) trace: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Print every step of repeated layers
    #[arg(long)]
    pub(crate) all: bool,
    /// Draw the arena: the buffers that hold the intermediates
    #[arg(long)]
    pub(crate) arena: bool,
    /// Omit the reasons for the choice of engines
    #[arg(long)]
    pub(crate) no_why: bool,
    /// Disable an optional pass; can be repeated
    #[arg(long, value_name = "PASS")]
    pub(crate) without: Vec<String>,
    /// Prefer this engine wherever it applies; can be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) engine: Vec<String>,
    /// Never use this engine; can be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) block: Vec<String>,
    /// Force an engine for nodes selected by label, id or operation: blk.0.ffn_down=ID, %12=ID,
    /// op:linear=ID; can be repeated
    #[arg(long, value_name = "NODES=ID", value_parser = crate::explain::forced)]
    pub(crate) force: Vec<(Selector, EngineId)>,
    /// Set a knob of an engine, such as wgsl.matvec.q4_k:rows=4; can be repeated
    #[arg(long, value_name = "ID:NAME=N", value_parser = crate::explain::knob)]
    pub(crate) knob: Vec<(EngineId, String, u32)>,
    /// Print the graph instead of the plan, as it is after the pass given by --after
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        conflicts_with_all = ["json", "save_plan", "analyze", "trace", "arena", "all", "no_why"]
    )]
    pub(crate) graph: Option<Form>,
    /// Pass after which --graph prints the graph [default: infer]
    #[arg(long, value_name = "PASS", requires = "graph")]
    pub(crate) after: Option<String>,
    /// Explain a saved graph instead of a model
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plan", "phase", "model"])]
    pub(crate) graph_file: Option<PathBuf>,
    /// Values or ranges of the saved graph's symbols: seq=1..8,past=512
    #[arg(
        long,
        value_name = "RANGES",
        value_delimiter = ',',
        value_parser = symbol,
        requires = "graph_file"
    )]
    pub(crate) symbols: Vec<(Symbol, u64, u64)>,
    /// Explain a saved plan instead of making one; with --analyze, --model supplies the weights
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "profile", "without", "engine", "block", "force", "knob", "graph", "phase"
        ]
    )]
    pub(crate) plan: Option<PathBuf>,
    /// Write the plan to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) save_plan: Option<PathBuf>,
}

/// Which run of a model is explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Phase {
    /// One decoded token
    Decode,
    /// 65 to 512 tokens of a prompt
    Prefill,
    /// One token for each of 8 sequences
    Batch,
}

/// Output format of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// One line per node
    Text,
    /// Graphviz DOT
    Dot,
}

#[cfg(test)]
mod tests {
    use crate::args::Cli;
    use clap::error::ErrorKind;

    #[test]
    fn no_option_is_left_unheard() {
        let graph = ["--json", "--save-plan=p", "--analyze", "--arena", "--all", "--no-why"];
        let rows = [
            (&["--graph", "text"][..], &graph[..]),
            (
                &["--with-device", "lavapipe"],
                &["--json", "--analyze", "--arena", "--all", "--no-why"],
            ),
            (&["--graph-file", "g.json"], &["--model=m.gguf", "--plan=p", "--phase=batch"]),
            (&["--plan", "p"], &["--graph-file=g.json", "--graph=dot", "--profile=lavapipe"]),
        ];
        for (first, others) in rows {
            for other in others {
                let all = ["warploom", "explain"].iter().chain(first).chain([other]);
                let error = Cli::read(all).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{first:?} {other}: {error}");
            }
        }
    }
}
