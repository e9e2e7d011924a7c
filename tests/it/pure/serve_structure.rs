//! Structured answers, tool calls and log probabilities over real sockets, with the small model.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warploom_serve::Server;

use super::serve::{events, exchange, post, request, status, wide_server};

const CHAT: &str = "/v1/chat/completions";

/// A question with more fields.
fn body(fields: Value) -> String {
    let mut body = json!({"messages": [{"role": "user", "content": "Tell me of a fox."}],
        "max_tokens": 120, "seed": 3, "temperature": 1.0});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string()
}

fn ask(server: &Server, fields: Value) -> Value {
    let (status, answer) = post(server.address(), CHAT, &body(fields));
    assert_eq!(status, 200, "{answer}");
    answer
}

fn refused(server: &Server, fields: Value) -> String {
    let (status, answer) = post(server.address(), CHAT, &body(fields));
    assert_eq!(status, 400, "{answer}");
    answer["error"]["message"].as_str().unwrap().to_owned()
}

fn schema(schema: Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
}

fn tools() -> Value {
    json!([
        {"type": "function", "function": {"name": "find", "description": "Finds an animal.",
            "parameters": {"type": "object", "properties": {
                "kind": {"enum": ["fox", "owl"]}, "count": {"type": "integer", "minimum": 1, "maximum": 9}},
                "required": ["kind", "count"], "additionalProperties": false}}},
        {"type": "function", "function": {"name": "stop"}},
    ])
}

#[test]
fn serve_answers_follow_a_schema() {
    let server = wide_server(4);
    let format = schema(json!({"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "ok": {"type": "boolean"}}, "required": ["name", "age", "ok"], "additionalProperties": false}));
    for seed in 0..6 {
        let answer = ask(&server, json!({"response_format": format, "seed": seed, "n": 2}));
        for choice in answer["choices"].as_array().unwrap() {
            assert_eq!(choice["finish_reason"], "stop", "{answer}");
            let text = choice["message"]["content"].as_str().unwrap();
            let value: Value = serde_json::from_str(text).unwrap();
            let object = value.as_object().unwrap();
            assert_eq!(object.len(), 3, "{text}");
            assert!(value["name"].as_str().unwrap().chars().count() <= 8, "{text}");
            assert!(value["age"].as_u64().unwrap() < 100 && value["ok"].is_boolean(), "{text}");
            assert!(text.find("name") < text.find("age") && text.find("age") < text.find("ok"));
        }
    }
    // A stream has the same text, and a request without a schema is not affected meanwhile.
    let fields = json!({"response_format": format});
    let whole = ask(&server, fields.clone());
    let mut streamed = fields;
    streamed["stream"] = true.into();
    let answer = exchange(server.address(), request(CHAT, &body(streamed)).as_bytes());
    let text: String = events(&answer)
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(String::from))
        .collect();
    assert_eq!(whole["choices"][0]["message"]["content"], text.as_str());
    let any = ask(&server, json!({"response_format": {"type": "json_object"}, "max_tokens": 9}));
    assert!(any["choices"][0]["message"]["content"].as_str().unwrap().starts_with('{'), "{any}");
}

#[test]
fn serve_calls_are_forced_and_read() {
    let server = wide_server(2);
    for (choice, names) in [
        (json!("required"), vec!["find", "stop"]),
        (json!({"type": "function", "function": {"name": "find"}}), vec!["find"]),
        (json!({"type": "function", "function": {"name": "stop"}}), vec!["stop"]),
    ] {
        let fields = json!({"tools": tools(), "tool_choice": choice, "parallel_tool_calls": false});
        let answer = ask(&server, fields.clone());
        let message = &answer["choices"][0]["message"];
        assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls", "{answer}");
        assert_eq!(message["content"], Value::Null, "{answer}");
        let calls = message["tool_calls"].as_array().unwrap();
        assert_eq!(calls.len(), 1, "{answer}");
        let name = calls[0]["function"]["name"].as_str().unwrap();
        assert!(names.contains(&name), "{answer}");
        let arguments = calls[0]["function"]["arguments"].as_str().unwrap();
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        if name == "find" {
            assert!(["fox", "owl"].contains(&arguments["kind"].as_str().unwrap()), "{answer}");
            assert!((1..10).contains(&arguments["count"].as_u64().unwrap()), "{answer}");
        }
        // The same, streamed.
        let mut streamed = fields;
        streamed["stream"] = true.into();
        let answer = exchange(server.address(), request(CHAT, &body(streamed)).as_bytes());
        let events = events(&answer);
        let parts: Vec<&Value> = events
            .iter()
            .filter_map(|event| event["choices"][0]["delta"]["tool_calls"].get(0))
            .collect();
        assert_eq!(parts[0]["function"]["name"], name, "{answer}");
        assert!(parts[0]["id"].as_str().unwrap().starts_with("call_"), "{answer}");
        let text: String =
            parts.iter().map(|part| part["function"]["arguments"].as_str().unwrap()).collect();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), arguments);
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
        // The call and its result are read again.
        let history = json!([{"role": "user", "content": "Look."}, message.clone(),
            {"role": "tool", "tool_call_id": calls[0]["id"], "content": "Two."}]);
        ask(&server, json!({"messages": history, "tools": tools(), "max_tokens": 3}));
    }
    // A free choice is not constrained; several calls may follow each other.
    let answer = ask(&server, json!({"tools": tools(), "max_tokens": 20}));
    assert!(answer["choices"][0]["message"]["content"].is_string(), "{answer}");
    let answer = ask(&server, json!({"tools": tools(), "tool_choice": "required", "seed": 5}));
    let calls = answer["choices"][0]["message"]["tool_calls"].as_array().unwrap();
    assert!(!calls.is_empty(), "{answer}");
}

#[test]
fn serve_schemas_that_cannot_be_followed_are_refused_by_name() {
    let server = wide_server(1);
    let field = "response_format.json_schema.schema: ";
    for (wrong, words) in [
        (json!({"type": "array", "uniqueItems": true}), "uniqueItems"),
        (json!({"type": "string", "format": "colour"}), "colour"),
        (json!({"$ref": "https://example.com/a"}), "https://example.com/a"),
        (json!({"type": "integer", "minimum": 2, "maximum": 1}), "Unsatisfiable"),
        (json!({"type": "string", "pattern": "("}), ""),
    ] {
        let message = refused(&server, json!({"response_format": schema(wrong)}));
        assert!(message.starts_with(field) && message.contains(words), "{message}");
    }
    let tool = |strict: bool| {
        json!([{"type": "function", "function": {"name": "ok"}},
            {"type": "function", "function": {"name": "f", "strict": strict, "parameters":
                {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}}}}])
    };
    let field = "tools[1].function.parameters: ";
    for fields in [
        json!({"tools": tool(false), "tool_choice": "required"}),
        json!({"tools": tool(true)}),
        json!({"tools": tool(false), "tool_choice": {"type": "function", "function": {"name": "f"}}}),
    ] {
        let message = refused(&server, fields);
        assert!(message.starts_with(field) && message.contains("uniqueItems"), "{message}");
    }
    // Without `strict`, a free choice is answered.
    ask(&server, json!({"tools": tool(false), "max_tokens": 2}));
    // Others are answered while a large schema is compiled.
    let wide: serde_json::Map<String, Value> = (0..3000)
        .map(|i| (format!("k{i}"), json!({"type": "string", "pattern": format!("^a{{{i}}}b*$")})))
        .collect();
    let wide =
        body(json!({"response_format": schema(json!({"type": "object", "properties": wide}))}));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| post(server.address(), CHAT, &wide));
        let answer = ask(&server, json!({"max_tokens": 2}));
        assert!(answer["choices"][0]["message"]["content"].is_string());
        let (status, answer) = slow.join().unwrap();
        assert!(status == 200 || status == 400, "{answer}");
    });
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}

#[test]
fn serve_log_probabilities_edits_and_several_answers() {
    let server = wide_server(2);
    let greedy = |mut fields: Value| {
        fields["temperature"] = 0.into();
        fields["max_tokens"] = 5.into();
        ask(&server, fields)
    };
    let answer = greedy(json!({"logprobs": true, "top_logprobs": 2}));
    let entries = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(entries.len(), 5, "{answer}");
    for entry in entries {
        let (own, top) = (entry["logprob"].as_f64().unwrap(), &entry["top_logprobs"]);
        assert_eq!(top[0]["token"], entry["token"]);
        assert!(own <= 0.0 && top[1]["logprob"].as_f64().unwrap() <= own, "{entry}");
    }
    // Without them the text is the same.
    assert_eq!(greedy(json!({}))["choices"][0]["message"], answer["choices"][0]["message"]);
    let text = json!({"content": entries[0]["token"], "add_special_tokens": false}).to_string();
    let (_, first) = post(server.address(), "/tokenize", &text);
    let token = first["tokens"][0].to_string();
    let other = greedy(json!({"logit_bias": {token: -100}}));
    assert_ne!(other["choices"][0]["message"], answer["choices"][0]["message"]);
    let two = ask(&server, json!({"n": 2, "max_tokens": 8, "temperature": 1.8, "top_k": 0}));
    let choices = two["choices"].as_array().unwrap();
    assert_eq!((choices.len(), &choices[1]["index"]), (2, &json!(1)));
    assert_ne!(choices[0]["message"], choices[1]["message"]);
    // The first answer alone has the same seed.
    let one = ask(&server, json!({"max_tokens": 8, "temperature": 1.8, "top_k": 0}));
    assert_eq!(one["choices"][0]["message"], choices[0]["message"]);
    assert_eq!(two["usage"]["prompt_tokens"], one["usage"]["prompt_tokens"]);
    let prompts =
        json!({"prompt": ["The sun", "A fox"], "echo": true, "max_tokens": 2, "logit_bias": {}});
    let (_, both) = post(server.address(), "/v1/completions", &prompts.to_string());
    assert!(both["choices"][1]["text"].as_str().unwrap().starts_with("A fox"), "{both}");
    let prompt = json!({"prompt": "The sun", "logprobs": 1, "max_tokens": 3, "temperature": 0});
    let (_, one) = post(server.address(), "/v1/completions", &prompt.to_string());
    let found = &one["choices"][0]["logprobs"];
    assert_eq!(found["text_offset"][0], 0, "{one}");
    assert_eq!(found["token_logprobs"].as_array().unwrap().len(), 3, "{one}");
    let long = ask(&server, json!({"ignore_eos": true, "max_tokens": 60, "temperature": 0}));
    assert_eq!(long["usage"]["completion_tokens"], 60);
}

#[test]
fn serve_the_model_and_the_server_describe_themselves() {
    let server = wide_server(2);
    let (_, tokens) = post(server.address(), "/tokenize", "{\"prompt\":\"The sun\"}");
    assert_eq!(tokens["count"], tokens["tokens"].as_array().unwrap().len());
    let back = json!({ "tokens": tokens["tokens"] }).to_string();
    let (_, text) = post(server.address(), "/detokenize", &back);
    assert_eq!(text["prompt"], "The sun");
    let messages = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}";
    let (_, chat) = post(server.address(), "/tokenize", messages);
    let answer =
        ask(&server, json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 4}));
    assert_eq!(chat["count"], answer["usage"]["prompt_tokens"]);
    let get = |path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = exchange(server.address(), head.as_bytes());
        assert_eq!(status(&answer), 200, "{answer}");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    let props: Value = serde_json::from_str(&get("/props")).unwrap();
    assert_eq!(
        (&props["total_slots"], &props["default_generation_settings"]["n_ctx"]),
        (&json!(2), &json!(512))
    );
    let metrics = get("/metrics");
    for line in ["vllm:generation_tokens_total 4", "vllm:time_to_first_token_seconds_count 1"] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    let head = "HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = exchange(server.address(), head.as_bytes());
    assert!(status(&answer) == 200 && answer.ends_with("\r\n\r\n"), "{answer}");
}
