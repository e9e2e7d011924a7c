//! Tests of the command line: accepted and rejected arguments, help texts.

use super::*;
use clap::error::ErrorKind;

fn generate(args: &[&str]) -> Result<GenerateArgs, clap::Error> {
    let all = ["warploom", "generate"].iter().chain(args);
    match Cli::read(all)?.command {
        Command::Generate(args) => Ok(args),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_help_has_examples_and_every_command_is_in_the_first() {
    let mut root = Cli::command();
    let help = root.render_long_help().to_string();
    for line in [
        "devices ",
        "generate ",
        "chat ",
        "download ",
        "bench ",
        "perplexity ",
        "embed ",
        "rerank ",
        "inspect ",
        "explain ",
        "quantize ",
        #[cfg(feature = "serve")]
        "serve ",
        "Exit codes: 0 done, 1 failed",
    ] {
        assert!(help.contains(line), "{line:?} in {help}");
    }
    let rows = [
        ("devices", ["warploom devices --json", "--device <DEVICE>", "WARPLOOM_DEVICE"]),
        ("generate", ["echo \"Long ago\" | warploom generate -", "--top-p <P>", "cuda, webgpu"]),
        ("chat", ["--system", "/help", "warploom chat --json"]),
        ("download", ["org/name:Q4_K_M", "HF_TOKEN", "--offline"]),
        ("explain", ["--graph dot --after simplify", "--profile <FILE|NAME>", "adreno-740"]),
        ("quantize", ["--type TQ2_0", "--type <TYPE>", "--force"]),
        #[cfg(feature = "serve")]
        ("serve", ["--parallel <N>", "127.0.0.1:8080/v1", "WARPLOOM_API_KEY"]),
        ("perplexity", ["warploom perplexity", "--window <N>", "--compute <MODE>"]),
        ("inspect", ["warploom inspect model.gguf", "--context <N>", "--tensors"]),
        ("rerank", ["warploom rerank", "--top <N>", "--file <FILE>"]),
        ("embed", ["warploom embed", "--pooling <POOLING>", "--dimensions <N>"]),
        ("bench", ["warploom bench --device cpu --json", "--prompt-tokens <N>", "--copy"]),
    ];
    for (name, lines) in rows {
        let command = root.find_subcommand_mut(name).unwrap();
        let help = command.render_long_help().to_string();
        assert!(help.contains("Examples:"), "{name}: {help}");
        for line in lines {
            assert!(help.contains(line), "{name}: {line:?} in {help}");
        }
    }
}

#[test]
fn options_reach_their_fields() {
    let args = generate(&[
        "--model",
        "m.gguf",
        "-d",
        "webgpu:1",
        "-n",
        "9",
        "-t",
        "0",
        "--top-p",
        "0.5",
        "--top-k",
        "3",
        "--min-p",
        "0.25",
        "--repeat-penalty",
        "1.5",
        "--repeat-last-n",
        "7",
        "--seed",
        "18446744073709551615",
        "-c",
        "99",
        "--copy",
        "--threads",
        "2",
        "--memory-budget",
        "1.5G",
        "--json",
        "-q",
        "Once",
    ])
    .unwrap();
    assert_eq!(args.prompt.as_deref(), Some("Once"));
    assert_eq!(args.place.device.as_deref(), Some("webgpu:1"));
    assert_eq!((args.place.context, args.place.threads), (Some(99), Some(2)));
    assert_eq!(args.place.memory_budget, Some(3 << 29));
    assert!(args.place.copy && args.json && args.quiet && args.max_tokens == 9);
    let want = Sampling::default()
        .temperature(0.0)
        .top_k(3)
        .top_p(0.5)
        .min_p(0.25)
        .repetition_penalty(1.5)
        .repeat_last_n(7)
        .seed(11);
    assert_eq!(args.sampling(11), want);
}

#[test]
fn a_file_gets_the_library_defaults() {
    let args = generate(&["-m", "m.gguf"]).unwrap();
    assert_eq!(args.sampling(0), Sampling::default());
    assert_eq!((args.max_tokens, args.prompt), (256, None));
}

#[test]
fn minus_one_means_what_it_means_elsewhere() {
    let given = ["-m", "m.gguf", "--seed", "-1", "--repeat-last-n", "-1", "--top-k=-1", "-n", "-1"];
    let args = generate(&given).unwrap();
    assert_eq!(args.choice.fixed_seed(), None);
    assert_ne!(args.choice.seed(), args.choice.seed());
    let sampling = args.sampling(3);
    assert_eq!((sampling.repeat_last_n, sampling.top_k, sampling.seed), (usize::MAX, 0, 3));
    assert_eq!(args.max_tokens, usize::MAX);
}

#[cfg(feature = "embedded-model")]
#[test]
fn the_own_model_gets_the_values_of_its_card() {
    let got = generate(&["Once"]).unwrap().sampling(0);
    assert_eq!((got.temperature, got.min_p, got.repetition_penalty), (0.7, 0.05, 1.15));
    assert_eq!((got.top_k, got.top_p, got.repeat_last_n), (0, 1.0, 64));
}

#[cfg(not(feature = "embedded-model"))]
#[test]
fn without_an_own_model_a_file_must_be_named() {
    let error = generate(&["Once"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingRequiredArgument);
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn wrong_values_are_usage_errors_that_say_what_is_right() {
    let rows: [(&[&str], &str); 15] = [
        (&["-n", "0"], "above 0"),
        (&["-n", "many"], "above 0"),
        (&["-t=-1"], "0 or more"),
        (&["-t", "-1"], "0 or more"),
        (&["-t", "-1", "Once"], "0 or more"),
        (&["--seed", "-2"], "from 0 to 18446744073709551615, or -1 for a random one"),
        (&["--repeat-last-n", "-2"], "0 or more, or -1 for the whole context"),
        (&["--top-k", "-2"], "0 or more"),
        (&["-t", "NaN"], "0 or more"),
        (&["-t", "inf"], "0 or more"),
        (&["--top-p", "1.1"], "from 0 to 1"),
        (&["--min-p=-0.1"], "from 0 to 1"),
        (&["--repeat-penalty", "0"], "above 0"),
        (&["--memory-budget", "lots"], "512M"),
        (&["-c", "0"], "above 0"),
    ];
    for (args, words) in rows {
        let all: Vec<&str> = ["-m", "m.gguf"].iter().chain(args).copied().collect();
        let error = generate(&all).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{args:?}");
        assert_eq!(error.kind(), ErrorKind::ValueValidation, "{args:?}");
        assert!(error.to_string().contains(words), "{args:?}: {error}");
    }
    #[cfg(feature = "serve")]
    for seconds in ["0", "-5", "18446744073709551615"] {
        let all = ["warploom", "serve", "-m", "m.gguf", "--timeout", seconds];
        assert_eq!(Cli::read(all).unwrap_err().kind(), ErrorKind::ValueValidation);
    }
    #[cfg(feature = "serve")]
    for one in ["--tls-cert", "--tls-key"] {
        let error = Cli::read(["warploom", "serve", one, "x.pem"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingRequiredArgument);
        assert!(error.to_string().contains("--tls-"), "{error}");
    }
    let error = Cli::read(["warploom", "sing"]).unwrap_err();
    assert_eq!((error.kind(), error.exit_code()), (ErrorKind::InvalidSubcommand, 2));
    let error = Cli::read(["warploom", "bench", "--help"]).unwrap_err();
    assert_eq!((error.kind(), error.exit_code()), (ErrorKind::DisplayHelp, 0));
}
