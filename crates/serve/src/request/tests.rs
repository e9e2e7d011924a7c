//! What requests may ask for, and how wrong fields are named.

use super::common::MAX_STOPS;
use super::*;
use crate::LogitEdits;
use warploom_llm::Sampling;
use warploom_llm::chat::Role;

fn refused(body: &str) -> String {
    let base = ServeOptions::default();
    chat(body.as_bytes(), &base).err().map(|e| e.message).unwrap_or_default()
}

fn with(fields: &str) -> String {
    format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"x\"}}],{fields}}}")
}

#[test]
fn what_is_asked_for_is_taken() {
    let body = r#"{"model": "m", "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        "max_completion_tokens": 7, "temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.1,
        "repetition_penalty": 1.5, "seed": -2, "stop": ["x", "yz"], "stream": true,
        "stream_options": {"include_usage": true}, "n": 1, "frequency_penalty": 0.0,
        "logprobs": false, "user": "me", "tools": null}"#;
    let got = chat(body.as_bytes(), &ServeOptions::default()).unwrap();
    let want = [Message::new(Role::System, "Be brief."), Message::new(Role::User, "a\nb")];
    assert_eq!(got.messages, want);
    assert_eq!((&got.format, &got.choice), (&ResponseFormat::Text, &Choice::None));
    let sampling = Sampling::default()
        .temperature(0.0)
        .top_k(3)
        .top_p(0.5)
        .min_p(0.1)
        .repetition_penalty(1.5)
        .repeat_last_n(64)
        .seed(u64::MAX - 1);
    let want = Asked {
        model: Some("m".into()),
        max_tokens: Some(Some(7)),
        sampling,
        edits: LogitEdits::default(),
        stop: vec!["x".into(), "yz".into()],
        ignore_end: false,
        n: 1,
        logprobs: None,
        stream: true,
        include_usage: true,
    };
    assert_eq!(got.asked, want);
}

#[test]
fn what_is_wrong_is_named() {
    for (fields, words) in [
        ("\"temperature\":3", "temperature: must be a number from 0 to 2, is 3"),
        ("\"temperature\":\"hot\"", "temperature: must be a number from 0 to 2, is a string"),
        ("\"top_p\":1.5", "top_p: must be"),
        ("\"top_k\":-2", "top_k: must be an integer of at least 0, or -1 for no limit, is -2"),
        ("\"top_k\":1.5", "top_k: must be an integer"),
        (
            "\"max_tokens\":0",
            "max_tokens: must be an integer of at least 1, or -1 for no limit, is 0",
        ),
        (
            "\"max_tokens\":-2",
            "max_tokens: must be an integer of at least 1, or -1 for no limit, is -2",
        ),
        ("\"max_completion_tokens\":-5", "max_completion_tokens: must be an integer"),
        ("\"max_tokens\":\"-1\"", "max_tokens: must be an integer"),
        ("\"max_tokens\":1,\"max_completion_tokens\":2", "but max_tokens is 1"),
        ("\"n\":0", "n: must be an integer from 1 to 128, is 0"),
        ("\"n\":129", "n: must be an integer from 1 to 128, is 129"),
        ("\"logprobs\":2", "logprobs: must be true or false, is 2"),
        ("\"logprobs\":true,\"top_logprobs\":21", "top_logprobs: must be an integer from 0 to 20"),
        ("\"top_logprobs\":2", "top_logprobs: is for logprobs: true"),
        ("\"frequency_penalty\":2.5", "frequency_penalty: must be a number from -2 to 2"),
        ("\"presence_penalty\":\"x\"", "presence_penalty: must be a number from -2 to 2"),
        ("\"logit_bias\":{\"5\":101}", "logit_bias: the bias of 5 must be a number from -100"),
        ("\"logit_bias\":{\"a\":1}", "logit_bias: \"a\" is not the id of a token"),
        ("\"logit_bias\":[]", "logit_bias: must be an object"),
        ("\"min_tokens\":-1", "min_tokens: must be an integer of at least 0"),
        ("\"tools\":[{}]", "tools[0].type: only tools of type function"),
        ("\"tools\":{}", "tools: must be a list"),
        ("\"tool_choice\":\"required\"", "tool_choice: there are no tools"),
        ("\"tool_choice\":\"maybe\"", "tool_choice: must be none, auto"),
        ("\"functions\":[{}]", "functions: is not supported"),
        ("\"response_format\":{\"type\":\"xml\"}", "response_format.type: must be text"),
        (
            "\"response_format\":{\"type\":\"json_schema\"}",
            "response_format.json_schema: is missing",
        ),
        (
            "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\"}}",
            "response_format.json_schema.schema: is missing",
        ),
        (
            "\"response_format\":{\"type\":\"json_object\"},\"min_tokens\":2",
            "min_tokens: cannot be combined",
        ),
        ("\"reasoning_effort\":\"huge\"", "reasoning_effort: must be one of none"),
        ("\"chat_template_kwargs\":{\"a b\":1}", "chat_template_kwargs: \"a b\" is not the name"),
        ("\"guided_json\":{}", "guided_json: is not supported"),
        ("\"stop\":[\"\"]", "stop: must be a string of at least 1 byte"),
        ("\"stop\":[\"a\",1]", "stop: must be a string of at least 1 byte"),
        ("\"stream\":1", "stream: must be true or false, is 1"),
        ("\"stream_options\":{}", "stream_options: is for requests that stream"),
        ("\"temprature\":1", "temprature: is not a known field"),
        ("\"seed\":1.5", "seed: must be a 64-bit integer"),
    ] {
        let got = refused(&with(fields));
        assert!(got.contains(words), "{fields}: {got:?}");
    }
    for (body, words) in [
        ("", "the body is no JSON: EOF while parsing a value at line 1 column 0"),
        ("{\"messages\":\n[}", "line 2 column 2"),
        ("[]", "the body must be an object, is a list of 0"),
        ("{}", "messages: must be a list"),
        ("{\"messages\":[]}", "messages: must be a list"),
        ("{\"messages\":[1]}", "messages[0]: must be an object, is 1"),
        ("{\"messages\":[{\"role\":\"king\"}]}", "messages[0].role: must be system"),
        ("{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content: must be a string"),
    ] {
        let got = refused(body);
        assert!(got.contains(words), "{body}: {got:?}");
    }
    let deep = "[".repeat(100_000);
    assert!(refused(&deep).contains("recursion limit"), "{}", refused(&deep));
}

#[test]
fn values_that_ask_for_nothing_are_taken() {
    for fields in [
        "\"n\":1,\"logprobs\":false,\"top_logprobs\":0,\"logit_bias\":{},\"store\":false",
        "\"frequency_penalty\":0,\"presence_penalty\":0.0,\"tools\":[],\"tool_choice\":\"none\"",
        "\"response_format\":{\"type\":\"text\"},\"modalities\":[\"text\"],\"functions\":[]",
        "\"reasoning_effort\":\"medium\",\"verbosity\":\"medium\",\"service_tier\":\"auto\"",
        "\"parallel_tool_calls\":null,\"prompt_cache_key\":\"k\",\"user\":\"u\",\"metadata\":{}",
        "\"max_tokens\":null,\"stop\":null,\"n\":null,\"seed\":null,\"tools\":null,\"stream\":null",
    ] {
        assert_eq!(refused(&with(fields)), "", "{fields}");
    }
    for fields in [
        "\"echo\":false,\"best_of\":1,\"suffix\":\"\",\"logprobs\":null,\"n\":1",
        "\"echo\":null,\"best_of\":null,\"suffix\":null,\"logit_bias\":{}",
    ] {
        let body = format!("{{\"prompt\":\"x\",{fields}}}");
        assert!(completion(body.as_bytes(), &ServeOptions::default()).is_ok(), "{fields}");
    }
    assert_eq!(refused(&format!("\u{feff}{}", with("\"n\":1"))), "");
}

#[test]
fn limits_below_zero_are_none() {
    let base = ServeOptions::default();
    let tokens = |fields: &str| {
        let asked = |fields: &str| chat(with(fields).as_bytes(), &base).unwrap().asked.max_tokens;
        let body = format!("{{\"prompt\":\"x\",{fields}}}");
        (asked(fields), completion(body.as_bytes(), &base).unwrap().asked.max_tokens)
    };
    assert_eq!(tokens("\"max_tokens\":-1"), (Some(None), Some(None)));
    assert_eq!(tokens("\"max_completion_tokens\":-1"), (Some(None), Some(None)));
    assert_eq!(tokens("\"max_tokens\":null"), (None, Some(Some(16))));
    let seven = (Some(Some(7)), Some(Some(7)));
    assert_eq!(tokens("\"max_tokens\":-1,\"max_completion_tokens\":7"), seven);
    assert_eq!(tokens("\"max_tokens\":7,\"max_completion_tokens\":-1"), seven);
    let sampling = |fields: &str| chat(with(fields).as_bytes(), &base).unwrap().asked.sampling;
    assert_eq!(sampling("\"top_k\":-1").top_k, 0);
    // A new seed for each request.
    assert_ne!(sampling("\"seed\":-1").seed, sampling("\"seed\":-1").seed);
    assert!(sampling("\"seed\":-1").seed <= 0xffff_ffff);
}

#[test]
fn stop_strings_are_bounded_by_their_bytes() {
    let stops = |list: &[String]| {
        let fields = format!("\"stop\":{}", json!(list));
        chat(with(&fields).as_bytes(), &ServeOptions::default()).map(|chat| chat.asked.stop)
    };
    let many: Vec<String> = (0..1500).map(|i| format!("{i:010}")).collect();
    assert_eq!(stops(&many).unwrap(), many);
    let one = "x".repeat(MAX_STOPS);
    let alone = std::slice::from_ref(&one);
    assert_eq!(stops(alone).unwrap(), alone);
    for list in [&[one.clone(), "y".into()][..], &[one + "y"]] {
        let error = stops(list).unwrap_err();
        assert!(error.message.contains("16384 bytes together"), "{}", error.message);
    }
    assert_eq!(stops(&[]).unwrap(), Vec::<String>::new());
}

#[test]
fn prompts_are_texts_or_tokens() {
    let of = |prompt: &str| {
        let body = format!("{{\"prompt\":{prompt}}}");
        completion(body.as_bytes(), &ServeOptions::default())
    };
    let text = |text: &str| Text::Text(text.into());
    for (prompt, want) in [
        ("\"x\"", vec![text("x")]),
        ("[\"x\"]", vec![text("x")]),
        ("[\"x\",\"y\"]", vec![text("x"), text("y")]),
        ("[1,2]", vec![Text::Tokens(vec![1, 2])]),
        ("[[1,2]]", vec![Text::Tokens(vec![1, 2])]),
        ("[[1],[2]]", vec![Text::Tokens(vec![1]), Text::Tokens(vec![2])]),
    ] {
        assert_eq!(of(prompt).unwrap().prompts, want, "{prompt}");
    }
    for prompt in ["null", "[[[1]]]", "[-1]", "[1.5]", "{}", "[1,\"x\"]"] {
        assert!(of(prompt).is_err(), "{prompt}");
    }
    let many = format!("[{}\"x\"]", "\"x\",".repeat(200));
    let error = of(&many).unwrap_err().message;
    assert!(error.contains("201 prompts, the limit is 128"), "{error}");
    assert_eq!(of("\"x\"").unwrap().asked.max_tokens, Some(Some(16)));
    let of = |fields: &str| {
        let body = format!("{{\"prompt\":[\"x\",\"y\"],{fields}}}");
        completion(body.as_bytes(), &ServeOptions::default())
    };
    let got = of("\"echo\":true,\"n\":3,\"best_of\":3").unwrap();
    assert_eq!((got.echo, got.asked.n), (true, 3));
    assert_eq!(of("\"logprobs\":5").unwrap().asked.logprobs, Some(5));
    for (fields, words) in [
        ("\"n\":65", "prompt: 2 prompts and n of 65: more than 128 answers"),
        ("\"logprobs\":true", "logprobs: must be an integer"),
        ("\"logprobs\":1,\"echo\":true", "echo: is not supported together with logprobs"),
        ("\"best_of\":2", "best_of: is not supported"),
    ] {
        let error = of(fields).unwrap_err().message;
        assert!(error.contains(words), "{fields}: {error}");
    }
}

/// A tool as clients write it.
fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {
        "type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}}}})
}

#[test]
fn tools_and_their_choice_are_read() {
    let of = |fields: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "x"}]});
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        chat(body.to_string().as_bytes(), &ServeOptions::default())
    };
    let got = of(json!({"tools": [tool("f"), tool("g")]})).unwrap();
    assert_eq!((got.choice, got.parallel), (Choice::Auto, true));
    assert_eq!(got.tools[1].name, "g");
    // The order of the parameters is the order in which they are written.
    assert!(got.tools[0].json.find("\"z\"") < got.tools[0].json.find("\"a\""));
    let named = json!({"type": "function", "function": {"name": "g"}});
    for (choice, want) in [
        (json!("none"), Choice::None),
        (json!("auto"), Choice::Auto),
        (json!("required"), Choice::Required),
        (named, Choice::Named(1)),
    ] {
        let fields = json!({"tools": [tool("f"), tool("g")], "tool_choice": choice,
            "parallel_tool_calls": false});
        let got = of(fields).unwrap();
        assert_eq!((got.choice, got.parallel), (want, false));
    }
    let unknown = json!({"type": "function", "function": {"name": "h"}});
    for (fields, words) in [
        (json!({"tools": [tool("f")], "tool_choice": unknown}), "there is no tool \"h\""),
        (json!({"tools": [tool("f"), tool("f")]}), "tools[1].function.name: \"f\" is the name of"),
        (json!({"tools": [tool("a b")]}), "tools[0].function.name: must be 1 to 128 letters"),
        (json!({"tools": [tool("")]}), "tools[0].function.name: must be 1 to 128 letters"),
        (json!({"tools": [{"type": "custom"}]}), "tools[0].type: only tools of type function"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].function: is missing"),
        (
            json!({"tools": [tool("f")], "tool_choice": "required",
                "response_format": {"type": "json_object"}}),
            "response_format: cannot be combined",
        ),
    ] {
        let error = of(fields.clone()).unwrap_err().message;
        assert!(error.contains(words), "{fields}: {error}");
    }
}

#[test]
fn formats_are_read() {
    let of = |format: Value| {
        let body =
            json!({"messages": [{"role": "user", "content": "x"}], "response_format": format});
        chat(body.to_string().as_bytes(), &ServeOptions::default()).map(|chat| chat.format)
    };
    let schema = json!({"type": "object", "properties": {"z": {}, "a": {}}});
    for (format, want) in [
        (json!({"type": "text"}), ResponseFormat::Text),
        (json!({"type": "json_object"}), ResponseFormat::JsonObject),
        (
            json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema,
                "strict": true, "description": "d"}}),
            ResponseFormat::JsonSchema(schema.to_string()),
        ),
        (
            json!({"type": "json_object", "schema": schema}),
            ResponseFormat::JsonSchema(schema.to_string()),
        ),
    ] {
        assert_eq!(of(format.clone()).unwrap(), want, "{format}");
    }
    let extra = json!({"type": "json_schema", "json_schema": {"schema": {}, "other": 1}});
    assert!(of(extra).unwrap_err().message.contains("json_schema.other: is not a known field"));
}
