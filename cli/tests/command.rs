//! The command as a shell runs it: exit codes, standard output and standard error.

use std::process::{Command, Output, Stdio};

fn warploom(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_warploom")).args(args).output().unwrap()
}

/// Text of the embedded model on the CPU, which every machine has.
#[test]
fn generate_writes_text_and_one_object() {
    let args =
        ["generate", "Once upon a time", "--device", "cpu", "--temperature", "0", "-n", "12"];
    let plain = warploom(&args);
    assert_eq!(plain.status.code(), Some(0), "{}", text(&plain.stderr));
    let written = text(&plain.stdout);
    assert!(written.split_whitespace().count() >= 8, "{written:?}");
    assert!(text(&plain.stderr).contains("selected=cpu:0"));
    let json = warploom(&[&args[..], &["--json"]].concat());
    let object: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(object["text"].as_str(), Some(written.trim_end_matches('\n')));
    assert_eq!((&object["tokens"], &object["finish"]), (&12.into(), &"length".into()));
    assert!(object["compute_mode"].as_str().unwrap().starts_with("Int8"));
    let exact = warploom(&[&args[..], &["--json", "--compute", "f32"]].concat());
    let object: serde_json::Value = serde_json::from_slice(&exact.stdout).unwrap();
    assert!(object["compute_mode"].as_str().unwrap().starts_with("F32"));
}

/// A plan for a machine that is not present, its file and its report.
#[test]
fn explain_shows_plans_of_models_and_files() {
    let folder = std::env::temp_dir().join(format!("warploom-explain-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (plan, trace, profile) = (path("plan"), path("trace.json"), path("profile.json"));

    let made = warploom(&["explain", "--profile", "apple-m2", "--save-plan", &plan]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    let message = text(&made.stdout);
    assert!(message.contains("Apple M2") && message.contains("why:"), "{message}");
    let loaded = warploom(&["explain", "--plan", &plan]);
    assert_eq!(text(&loaded.stdout), message);

    let json = warploom(&["explain", "--profile", "cpu-avx512", "--phase", "prefill", "--json"]);
    let object: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&object["schema"], &object["device"]["kind"]), (&1.into(), &"cpu".into()));
    assert!(object["class"].as_str().unwrap().contains("seq=65..512"), "{}", object["class"]);

    let args = ["explain", "-d", "cpu", "--analyze", "--runs", "2", "--trace", &trace, "-c", "64"];
    let measured = warploom(&args);
    assert_eq!(measured.status.code(), Some(0), "{}", text(&measured.stderr));
    assert!(text(&measured.stdout).contains("2 runs on cpu:0"));
    assert!(text(&measured.stdout).contains("by engine:"));
    let events: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    assert!(events["traceEvents"].as_array().unwrap().len() > 20);

    let saved = warploom(&["devices", "-d", "cpu", "--save-profile", &profile]);
    assert_eq!(saved.status.code(), Some(0), "{}", text(&saved.stderr));
    let again = warploom(&["explain", "--profile", &profile, "--arena", "--no-why"]);
    assert!(
        text(&again.stdout).contains("for cpu:0") && text(&again.stdout).contains("steps 0 to")
    );

    let dot =
        warploom(&["explain", "--profile", "lavapipe", "--graph", "dot", "--after", "simplify"]);
    assert!(text(&dot.stdout).starts_with("digraph"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn bench_shows_where_the_time_goes() {
    let args =
        ["bench", "-d", "cpu", "-c", "96", "-p", "65", "-n", "4", "-s", "2", "--kernels", "--json"];
    let run = warploom(&args);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let object: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    for (phase, attention) in [("prefill", "attn_prefill"), ("decode", "attn_decode")] {
        assert!(object[phase]["tokens_per_second"].as_f64().unwrap() > 0.0);
        let kernels = object[phase]["kernels"].as_array().unwrap();
        let shares: f64 = kernels.iter().map(|kernel| kernel["share"].as_f64().unwrap()).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{phase}: {shares}");
        let named =
            |kernel: &serde_json::Value| kernel["engine"].as_str().unwrap().contains(attention);
        let attention = kernels.iter().find(|kernel| named(kernel)).unwrap();
        assert!(attention["bytes_per_s"].as_f64().unwrap() > 0.0, "{attention}");
    }
}

#[test]
fn explain_plans_with_the_engines_of_the_environment() {
    let (engine, other) = ("wgsl.matvec_int8.q4_k.subgroup", "wgsl.matvec_prequant.q4_k.subgroup");
    let taken = |variable: &str, more: &[&str]| {
        let args = ["explain", "--profile", "nvidia-h200", "--compute", "int8", "--json"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_warploom"));
        let command = command.args(args).args(more).env("WARPLOOM_ENGINE", variable);
        let out = command.output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let object: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let steps = object["steps"].as_array().unwrap().clone();
        steps.iter().map(|step| step["engine"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let has = |taken: &[String], id: &str| taken.iter().any(|engine| engine == id);
    assert!(has(&taken("", &[]), engine));
    assert!(!has(&taken(&format!("-{engine}"), &[]), engine));
    let preferred = taken(other, &[]);
    assert!(has(&preferred, other) && preferred != taken("", &[]));
    assert_eq!(preferred, taken("", &["--engine", other]));
}

#[test]
fn explain_says_what_names_there_are() {
    let rows: [(&[&str], &str); 13] = [
        (&["--profile", "m3"], "nvidia-h200"),
        (&["--profile", "lavapipe", "--without", "lower"], "cannot be switched off"),
        (&["--profile", "lavapipe", "--without", "magic"], "does not exist"),
        (&["--profile", "lavapipe", "--engine", "magic"], "no engine \"magic\" is registered"),
        (&["--profile", "lavapipe", "--engine", "catalogue.attention"], "catalogue.attn_decode"),
        (&["--plan", "p", "--model", "m.gguf"], "needs --analyze"),
        (&["--profile", "lavapipe", "--block", "magic"], "no engine \"magic\" is registered"),
        (&["--profile", "lavapipe", "--force", "op:linear=magic"], "no engine \"magic\""),
        (&["--profile", "lavapipe", "--force", "%99999=fused.rows"], "no such node"),
        (&["--profile", "lavapipe", "--knob", "fused.rows=4"], "must be ID:NAME=N"),
        (&["--with-device", "cpu-avx512", "--place-nodes", "op:gather"], "must be NODES=SLOT"),
        (
            &["--profile", "lavapipe", "--with-device", "m3", "--place-nodes", "op:gather=1"],
            "nvidia-h200",
        ),
        (
            &["--profile", "lavapipe", "--knob", "wgsl.matvec.q4_k.subgroup:rows=3"],
            "rows = 3 is not one of",
        ),
    ];
    for (args, words) in rows {
        let output = warploom(&[&["explain"], args].concat());
        // The argument parser reports unknown arguments.
        let code = if words.starts_with("must be") { 2 } else { 1 };
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(text(&output.stderr).contains(words), "{args:?}: {}", text(&output.stderr));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn help_and_version_are_results() {
    for args in [&["--help"][..], &["generate", "--help"], &["--version"]] {
        let output = warploom(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(text(&output.stdout).contains("warploom"), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn wrong_usage_is_2_and_says_so_on_standard_error() {
    let rows: [(&[&str], &str); 4] = [
        (&[], "Usage"),
        (&["sing"], "unrecognized subcommand"),
        (&["generate", "--temperature", "hot"], "0 or more"),
        (&["bench", "--tokens", "0"], "above 0"),
    ];
    for (args, words) in rows {
        let output = warploom(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains(words), "{args:?}: {stderr}");
    }
}

#[test]
fn a_failure_is_1_with_one_line_on_standard_error() {
    for command in ["generate", "bench", "chat"] {
        let args = [command, "--model", "no-such-file.gguf"];
        for json in [&[][..], &["--json"]] {
            let output = warploom(&[&args[..], json].concat());
            assert_eq!(output.status.code(), Some(1), "{command}");
            let stderr = text(&output.stderr);
            assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{stderr}");
            if json.is_empty() {
                assert!(output.stdout.is_empty(), "{command}");
                continue;
            }
            let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let field = if command == "chat" { "message" } else { "error" };
            assert_eq!(format!("error: {}\n", object[field].as_str().unwrap()), stderr);
            assert_eq!(object["event"] == "error", command == "chat", "{object}");
        }
    }
}

/// A closed pipe, as after `| head -0`.
#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let rows: [&[&str]; 3] = [
        &["devices", "-d", "cpu", "--json"],
        &["explain", "--profile", "lavapipe"],
        &["generate", "-d", "cpu", "-n", "1", "--quiet", "--json", "Once"],
    ];
    for args in rows {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warploom"));
        // Without this variable a graphics library of the system writes to standard error.
        command.args(args).env("XDG_RUNTIME_DIR", std::env::temp_dir());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = text(&output.stderr);
        assert!(output.status.success() && !stderr.contains("error"), "{args:?}: {stderr}");
    }
}

/// Points the Vulkan loader to a driver that does not exist, like a machine without a driver.
#[cfg(target_os = "linux")]
#[test]
fn without_a_driver_for_vulkan_that_is_said_and_the_next_provider_taken() {
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warploom"));
        for variable in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"] {
            command.env(variable, "/nowhere/none.json");
        }
        command.args(args).env_remove("WARPLOOM_DEVICE").output().unwrap()
    };
    let why = "wgpu found no adapter: no driver for Vulkan is here";
    let listed = run(&["devices"]);
    assert!(listed.status.success() && text(&listed.stdout).contains(why), "{listed:?}");
    let forced = run(&["generate", "x", "--device", "webgpu", "--max-tokens", "1"]);
    assert_eq!(forced.status.code(), Some(1));
    assert!(text(&forced.stderr).contains(&format!("webgpu is not here: {why}")), "{forced:?}");
    let chosen = run(&["generate", "x", "--max-tokens", "1", "--quiet"]);
    assert!(chosen.status.success(), "{chosen:?}");
}

/// A minimal GGUF file to quantise: a matrix [2, 256], a vector and the architecture key.
fn small_f32_file() -> Vec<u8> {
    use warploom_models::gguf::{Value, Writer};
    let mut writer = Writer::new();
    writer.key("general.architecture", Value::String("test")).unwrap();
    writer.tensor("w.weight", &[2, 256], warploom_core::base::Format::F32).unwrap();
    writer.tensor("norm.weight", &[256], warploom_core::base::Format::F32).unwrap();
    let mut out = writer.begin(Vec::new()).unwrap();
    for i in 0..768 {
        out.write(&((i * 37 % 101) as f32 / 50.0 - 1.0).to_le_bytes()).unwrap();
    }
    out.finish().unwrap()
}

#[test]
fn quantize_writes_a_file_and_reports_errors() {
    let folder = std::env::temp_dir().join(format!("warploom-quantize-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (input, output) = (path("in.gguf"), path("out.gguf"));
    std::fs::write(&input, small_f32_file()).unwrap();
    let args = ["quantize", &input, &output, "--type", "q4_k"];
    let made = warploom(&args);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    assert!(text(&made.stdout).contains("f32 -> q4_k"), "{}", text(&made.stdout));

    // No file is replaced without --force, and no other file is left in the folder.
    let again = warploom(&args);
    assert_eq!(again.status.code(), Some(1));
    let message = text(&again.stderr);
    assert!(message.contains("already exists") && message.contains("--force"), "{message}");
    let whole = std::fs::read(&input).unwrap();
    let over = warploom(&["quantize", &input, &input, "-t", "Q8_0", "--force"]);
    assert_eq!(over.status.code(), Some(1));
    assert!(text(&over.stderr).contains("is the input"), "{}", text(&over.stderr));
    assert_eq!(std::fs::read(&input).unwrap(), whole);
    let json = warploom(&[&args[..], &["--force", "--json"]].concat());
    let object: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&object["schema"], &object["type"]), (&1.into(), &"q4_k".into()));
    let matrix = &object["tensors"][0];
    assert_eq!((&matrix["from"], &matrix["to"]), (&"f32".into(), &"q4_k".into()));
    assert!(matrix["relative"].as_f64().is_some_and(|share| share > 0.0 && share < 0.1));
    assert_eq!(object["tensors"][1]["rmse"], 0.0);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);

    // An already packed tensor is reported by name.
    let packed = warploom(&["quantize", &output, &path("more.gguf"), "-t", "Q8_0"]);
    assert_eq!(packed.status.code(), Some(1));
    assert!(text(&packed.stderr).contains("`w.weight`"), "{}", text(&packed.stderr));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// No signal leaves a partial file; a process that ignores hangups continues.
#[cfg(unix)]
#[test]
fn quantize_leaves_nothing_when_it_is_ended() {
    use std::os::unix::process::CommandExt;
    use warploom_models::gguf::{Value, Writer};
    let folder = std::env::temp_dir().join(format!("warploom-ended-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (input, output) = (folder.join("in.gguf"), folder.join("out.gguf"));
    let mut writer = Writer::new();
    writer.key("general.architecture", Value::String("test")).unwrap();
    writer.tensor("w.weight", &[1 << 15, 1 << 14], warploom_core::base::Format::F32).unwrap();
    let (mut head, bytes) = (Vec::new(), writer.file_bytes());
    drop(writer.begin(&mut head).unwrap());
    std::fs::write(&input, head).unwrap();
    // A sparse file of zeros.
    std::fs::File::options().write(true).open(&input).unwrap().set_len(bytes).unwrap();
    let parts = || std::fs::read_dir(&folder).unwrap().count();
    for (signal, before) in [("-TERM", ""), ("-HUP", ""), ("-TERM", "trap '' HUP; ")] {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("{before}exec \"$@\""), "sh", env!("CARGO_BIN_EXE_warploom")])
            .arg("quantize")
            .args([&input, &output])
            .args(["--type", "Q4_K", "--threads", "1"])
            .stderr(Stdio::piped());
        // SAFETY: `signal` may be called between fork and exec. Tests under `nohup` ignore hangups,
        // which a child would inherit.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGHUP, libc::SIG_DFL);
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap();
        let tell = |signal: &str, child: &std::process::Child| {
            // The shell's built-in: some machines have no such program.
            let order = format!("kill {signal} {}", child.id());
            assert!(Command::new("sh").args(["-c", &order]).status().unwrap().success());
        };
        while parts() < 2 && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        if !before.is_empty() {
            tell("-HUP", &child);
            std::thread::sleep(std::time::Duration::from_millis(200));
            assert!(child.try_wait().unwrap().is_none(), "a hangup ended it");
        }
        tell(signal, &child);
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(130), "{signal}: {}", text(&ended.stderr));
        assert_eq!(parts(), 1, "{signal}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Every CPU engine passes; stored results that cannot be read are reported, and can be
/// forgotten.
#[test]
fn doctor_reports_and_remembers() {
    let folder = std::env::temp_dir().join(format!("warploom-cli-doctor-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let with = |doctor: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warploom"));
        command.args(args).env("WARPLOOM_CACHE", &folder).env("WARPLOOM_DOCTOR", doctor);
        command.output().unwrap()
    };
    let run = |args: &[&str]| with("on", args);
    let args = ["doctor", "--device", "cpu", "--seconds", "0"];
    let unsaved = run(&[&args[..], &["--no-save"]].concat());
    assert_eq!(unsaved.status.code(), Some(0), "{}", text(&unsaved.stderr));
    assert!(text(&unsaved.stdout).contains(" 0 wrong"), "{}", text(&unsaved.stdout));
    assert!(!folder.exists());

    let json = run(&[&args[..], &["--json"]].concat());
    let object: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&object["schema"], &object["right"]), (&1.into(), &true.into()));
    assert_eq!(object["device"]["profile"]["provider"], "cpu");
    let engines = object["engines"].as_array().unwrap();
    let right = engines.iter().filter(|engine| engine["finding"] == "right").count();
    assert!(right >= 80 && engines.len() > right, "{right} of {}", engines.len());
    let file = object["remembered_in"].as_str().unwrap().to_owned();

    // An engine stored as wrong is excluded, and `explain` shows the reason.
    let kept = std::fs::read_to_string(&file).unwrap();
    let explain = ["explain", "--device", "cpu", "--all"];
    let message = text(&run(&explain).stdout);
    let engine = message.split_whitespace().find(|word| word.starts_with("cpu.")).unwrap();
    let wrong = format!(r#""wrong": [{{ "engine": "{engine}", "what": "a test says so" }}]"#);
    std::fs::write(&file, kept.replace("\"wrong\": []", &wrong)).unwrap();
    let message = text(&run(&explain).stdout);
    let line = message.lines().find(|line| line.contains("a test says so")).unwrap();
    assert!(line.contains(engine) && line.contains("blocked by doctor on 2"), "{line}");
    assert!(!text(&with("off", &explain).stdout).contains("a test says so"));
    let bad = text(&with("maybe", &explain).stderr);
    assert!(bad.contains("WARPLOOM_DOCTOR=\"maybe\" is not valid"), "{bad}");
    let again = text(&run(&args).stdout);
    assert!(again.contains(&format!("{engine} failed before and now passes")), "{again}");

    std::fs::write(&file, &kept[..kept.len() / 2]).unwrap();
    let message = run(&explain);
    assert_eq!(message.status.code(), Some(0));
    assert!(text(&message.stderr).contains("findings of doctor are ignored"));
    for words in ["forgotten cpu:0", "no stored results for cpu:0"] {
        let forgotten = run(&["doctor", "--device", "cpu", "--forget"]);
        assert!(text(&forgotten.stderr).contains(words), "{}", text(&forgotten.stderr));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Results of `tune` are stored, used by plans, shown by `explain` and `devices`, exported,
/// forgotten.
#[test]
fn tune_measures_once_and_is_taken() {
    let folder = std::env::temp_dir().join(format!("warploom-tune-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let (home, other) = (folder.join("home"), folder.join("other"));
    let shipped = folder.join("mine.tune");
    let run = |cache: &std::path::Path, extra: &[(&str, &str)], args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warploom"));
        command.args(args).env("WARPLOOM_CACHE", cache).envs(extra.iter().copied());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        output
    };
    let json =
        |output: &Output| serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap();
    let tune = ["tune", "-d", "cpu", "--classes", "decode", "-c", "64", "--seconds", "0", "--json"];
    let out = shipped.to_str().unwrap();
    let first = json(&run(&home, &[], &[&tune[..], &["--output", out]].concat()));
    let results = first["report"]["results"].as_array().unwrap().len();
    assert!(results > 2 && first["report"]["known"] == 0, "{first}");
    assert!(first["kept_in"].as_str().unwrap().ends_with(".tune"), "{first}");
    let second = json(&run(&home, &[], &tune));
    assert_eq!(
        (&second["report"]["known"], &second["report"]["measured"]),
        (&results.into(), &0.into())
    );

    let explain = ["explain", "-d", "cpu", "-c", "64"];
    let message = |cache: &std::path::Path, extra: &[(&str, &str)]| {
        text(&run(cache, extra, &explain).stdout).contains("tuned: ")
    };
    assert!(message(&home, &[]));
    assert!(!message(&home, &[("WARPLOOM_TUNE", "off")]));
    assert!(!message(&other, &[]) && message(&other, &[("WARPLOOM_TUNE_CACHE", out)]));
    let devices = text(&run(&home, &[], &["devices", "-d", "cpu"]).stdout);
    assert!(devices.contains(&format!("; {results} tasks tuned")), "{devices}");
    let generate = ["generate", "-d", "cpu", "-c", "64", "-n", "4", "--temperature", "0", "Once"];
    let line = text(&run(&home, &[], &generate).stderr);
    assert!(line.contains(&format!(" tuned={results}")), "{line}");

    // A session of 8 sequences has another plan for the batch; --sequences tunes it too.
    let batch = [&explain[..], &["--phase", "batch"]].concat();
    let batched = || {
        let text = text(&run(&home, &[], &batch).stdout);
        text.matches("tuned: ").count()
    };
    let before = batched();
    let several = json(&run(&home, &[], &[&tune[..], &["--sequences", "8"]].concat()));
    assert!(!several["report"]["results"].as_array().unwrap().is_empty(), "{several}");
    assert!(batched() > before, "{before}");

    let bad = Command::new(env!("CARGO_BIN_EXE_warploom"))
        .args(explain)
        .env("WARPLOOM_TUNE", "always")
        .output()
        .unwrap();
    assert_eq!(bad.status.code(), Some(1));
    assert!(text(&bad.stderr).contains("WARPLOOM_TUNE=\"always\" is not valid"));
    run(&home, &[], &["tune", "-d", "cpu", "--forget"]);
    assert!(!message(&home, &[]));
    std::fs::remove_dir_all(&folder).unwrap();
}
