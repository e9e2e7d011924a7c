//! The interfaces of agents over real sockets, with the small model: OpenAI's responses and
//! Anthropic's messages.

use serde_json::{Value, json};
use warploom_serve::{ServeOptions, Server};

use super::serve::{exchange, post, request, server, status, unchunked, wide_server};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

fn ask(server: &Server, path: &str, body: &Value) -> Value {
    let (status, answer) = post(server.address(), path, &body.to_string());
    assert_eq!(status, 200, "{answer}");
    answer
}

/// The events of a stream, each with the name that its data repeat.
fn streamed(server: &Server, path: &str, mut body: Value) -> Vec<Value> {
    body["stream"] = true.into();
    let answer = exchange(server.address(), request(path, &body.to_string()).as_bytes());
    assert_eq!(status(&answer), 200, "{answer}");
    let body = unchunked(&answer);
    let events = body.split_terminator("\n\n").map(|event| {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str(), "{event}");
        data
    });
    events.collect()
}

fn names(events: &[Value]) -> Vec<&str> {
    let mut names: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    names.dedup();
    names
}

/// The texts of the events with a name, in `field`.
fn joined(events: &[Value], name: &str, field: &str) -> String {
    let events = events.iter().filter(|event| event["type"] == name);
    let at = |event: &Value| event.pointer(field).unwrap().as_str().unwrap().to_owned();
    events.map(at).collect()
}

fn schema() -> Value {
    json!({ "type": "object", "properties": {
        "kind": { "enum": ["fox", "owl"] }, "count": { "type": "integer", "minimum": 1, "maximum": 9 } },
        "required": ["kind", "count"], "additionalProperties": false })
}

#[test]
fn serve_the_interfaces_write_the_same_text() {
    let server = server(1, ServeOptions::default());
    let messages = json!([{ "role": "user", "content": "Tell me of a fox." }]);
    let chat = ask(&server, CHAT, &json!({ "messages": messages, "max_tokens": 12, "seed": 3 }));
    let text = &chat["choices"][0]["message"]["content"];
    let usage = &chat["usage"];

    let body = json!({ "messages": messages, "max_tokens": 12, "seed": 3 });
    let message = ask(&server, MESSAGES, &body);
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(message["content"], json!([{ "type": "text", "text": text }]));
    assert_eq!(
        (&message["stop_reason"], &message["stop_sequence"]),
        (&json!("max_tokens"), &Value::Null)
    );
    // The second request finds the prompt cached, but for its last token.
    let counts = &message["usage"];
    let cached = counts["cache_read_input_tokens"].as_u64().unwrap();
    assert!(cached > 0, "{counts}");
    assert_eq!(
        counts["input_tokens"].as_u64().unwrap() + cached,
        usage["prompt_tokens"].as_u64().unwrap()
    );
    assert_eq!(counts["output_tokens"], usage["completion_tokens"]);
    let counted = ask(&server, "/v1/messages/count_tokens", &json!({ "messages": messages }));
    assert_eq!(counted, json!({ "input_tokens": usage["prompt_tokens"] }));
    let events = streamed(&server, MESSAGES, body);
    let want = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names(&events), want);
    assert_eq!(joined(&events, "content_block_delta", "/delta/text"), text.as_str().unwrap());
    let start = &events[0]["message"];
    assert_eq!((&start["content"], &start["stop_reason"]), (&json!([]), &Value::Null));
    assert_eq!(start["usage"]["cache_read_input_tokens"], cached);
    let delta = &events[events.len() - 2];
    assert_eq!(delta["delta"]["stop_reason"], "max_tokens");
    assert_eq!(delta["usage"]["output_tokens"], usage["completion_tokens"]);

    let body = json!({ "input": "Tell me of a fox.", "max_output_tokens": 12, "seed": 3 });
    let response = ask(&server, RESPONSES, &body);
    assert_eq!(
        (&response["object"], &response["status"]),
        (&json!("response"), &json!("incomplete"))
    );
    assert_eq!(response["incomplete_details"], json!({ "reason": "max_output_tokens" }));
    assert_eq!(response["output"][0]["content"][0]["text"], *text);
    assert_eq!(response["output"][0]["status"], "incomplete");
    assert_eq!((&response["max_output_tokens"], &response["store"]), (&json!(12), &json!(false)));
    assert_eq!(response["usage"]["total_tokens"], usage["total_tokens"]);
    assert_eq!(response["usage"]["output_tokens_details"], json!({ "reasoning_tokens": 0 }));
    let events = streamed(&server, RESPONSES, body);
    let want = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ];
    assert_eq!(names(&events), want);
    assert!(events.iter().enumerate().all(|(i, event)| event["sequence_number"] == i));
    assert_eq!(joined(&events, "response.output_text.delta", "/delta"), text.as_str().unwrap());
    let last = &events[events.len() - 1]["response"];
    assert_eq!(last["output"][0]["content"], response["output"][0]["content"]);
    assert_eq!(last["output"][0]["id"], events[2]["item"]["id"]);
    assert_eq!(last["usage"]["total_tokens"], usage["total_tokens"]);
}

#[test]
fn serve_messages_end_at_a_stop_sequence_by_name() {
    let server = server(1, ServeOptions::default());
    let messages = json!([{ "role": "user", "content": "Tell me of a fox." }]);
    let whole = ask(&server, MESSAGES, &json!({ "messages": messages, "max_tokens": 12 }));
    let text = whole["content"][0]["text"].as_str().unwrap();
    let stop: String = text.chars().skip(4).take(5).collect();
    let body =
        json!({ "messages": messages, "max_tokens": 12, "stop_sequences": ["no such text", stop] });
    let cut = ask(&server, MESSAGES, &body);
    assert_eq!(
        (&cut["stop_reason"], &cut["stop_sequence"]),
        (&json!("stop_sequence"), &json!(stop))
    );
    assert_eq!(cut["content"][0]["text"], text.split(&stop).next().unwrap());
    let events = streamed(&server, MESSAGES, body);
    assert_eq!(
        events[events.len() - 2]["delta"],
        json!({ "stop_reason": "stop_sequence", "stop_sequence": stop })
    );
    // The whole context: the prompt and as many tokens as there is room for.
    let words = "word ".repeat(230);
    let full =
        ask(&server, MESSAGES, &json!({ "messages": [{ "role": "user", "content": words }] }));
    assert!(
        ["model_context_window_exceeded", "end_turn"]
            .contains(&full["stop_reason"].as_str().unwrap()),
        "{full}"
    );
}

#[test]
fn serve_messages_call_tools_and_read_their_results() {
    let server = wide_server(1);
    let tools =
        json!([{ "name": "find", "description": "Finds an animal.", "input_schema": schema() }]);
    let body = json!({ "messages": [{ "role": "user", "content": "Look." }], "max_tokens": 120, "seed": 3,
        "temperature": 1.0, "tools": tools,
        "tool_choice": { "type": "tool", "name": "find", "disable_parallel_tool_use": true } });
    let answer = ask(&server, MESSAGES, &body);
    assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
    let call = &answer["content"][0];
    assert_eq!((&call["type"], &call["name"]), (&json!("tool_use"), &json!("find")), "{answer}");
    assert!((1..10).contains(&call["input"]["count"].as_u64().unwrap()), "{answer}");
    let events = streamed(&server, MESSAGES, body.clone());
    let start = events.iter().find(|event| event["type"] == "content_block_start").unwrap();
    assert_eq!(
        (&start["content_block"]["name"], &start["content_block"]["input"]),
        (&json!("find"), &json!({}))
    );
    let input = joined(&events, "content_block_delta", "/delta/partial_json");
    assert_eq!(serde_json::from_str::<Value>(&input).unwrap(), call["input"]);
    let history = json!([{ "role": "user", "content": "Look." },
        { "role": "assistant", "content": answer["content"] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": call["id"], "content": "Two." }] }]);
    let body = json!({ "messages": history, "tools": tools, "max_tokens": 3 });
    assert!(ask(&server, MESSAGES, &body)["content"][0]["text"].is_string());
    let format = json!({ "type": "json_schema", "schema": schema() });
    let body = json!({ "messages": [{ "role": "user", "content": "Look." }], "max_tokens": 120,
        "output_config": { "format": format } });
    let answer = ask(&server, MESSAGES, &body);
    let value: Value =
        serde_json::from_str(answer["content"][0]["text"].as_str().unwrap()).unwrap();
    assert!(["fox", "owl"].contains(&value["kind"].as_str().unwrap()), "{answer}");
}

#[test]
fn serve_responses_call_tools_and_read_their_results() {
    let server = wide_server(1);
    let tools = json!([{ "type": "function", "name": "find", "description": "Finds an animal.",
        "parameters": schema(), "strict": true }]);
    let body = json!({ "input": "Look.", "max_output_tokens": 120, "seed": 3, "temperature": 1.0, "tools": tools,
        "tool_choice": { "type": "function", "name": "find" }, "parallel_tool_calls": false });
    let answer = ask(&server, RESPONSES, &body);
    assert_eq!((&answer["status"], &answer["tools"]), (&json!("completed"), &tools), "{answer}");
    let call = &answer["output"][0];
    assert_eq!(
        (&call["type"], &call["name"]),
        (&json!("function_call"), &json!("find")),
        "{answer}"
    );
    let arguments = call["arguments"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(arguments).unwrap()["count"].is_u64(), "{answer}");
    let events = streamed(&server, RESPONSES, body);
    let want = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(names(&events), want);
    assert_eq!(joined(&events, "response.function_call_arguments.delta", "/delta"), arguments);
    assert_eq!(joined(&events, "response.function_call_arguments.done", "/arguments"), arguments);
    let history = json!([{ "role": "user", "content": "Look." }, call,
        { "type": "function_call_output", "call_id": call["call_id"], "output": "Two." }]);
    let body = json!({ "input": history, "tools": tools, "max_output_tokens": 3 });
    assert_eq!(ask(&server, RESPONSES, &body)["output"][0]["type"], "message");
    let format =
        json!({ "type": "json_schema", "name": "animal", "schema": schema(), "strict": true });
    let body = json!({ "input": "Look.", "max_output_tokens": 120, "text": { "format": format } });
    let answer = ask(&server, RESPONSES, &body);
    let text = answer["output"][0]["content"][0]["text"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(text).unwrap()["count"].is_u64(), "{answer}");
}

#[test]
fn serve_errors_have_the_format_of_the_interface() {
    let server = server(1, ServeOptions::default().api_key(Some("secret".into())));
    let body =
        json!({ "messages": [{ "role": "user", "content": "x" }], "max_tokens": 1 }).to_string();
    let send = |path: &str, field: &str, body: &str| {
        let text = request(path, body).replacen("Host: x", &format!("Host: x\r\n{field}"), 1);
        let answer = exchange(server.address(), text.as_bytes());
        let value: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        (status(&answer), value)
    };
    // The key of Anthropic's clients.
    assert_eq!(send(MESSAGES, "x-api-key: secret", &body).0, 200);
    let (status, error) = send(MESSAGES, "x-api-key: wrong", &body);
    let want = json!({ "type": "error", "error": { "type": "authentication_error", "message": "wrong or no API key" } });
    assert_eq!((status, error), (401, want));
    let wrong =
        json!({ "messages": [{ "role": "user", "content": [{ "type": "image" }] }] }).to_string();
    let (status, error) = send(MESSAGES, "x-api-key: secret", &wrong);
    assert_eq!((status, &error["error"]["type"]), (400, &json!("invalid_request_error")));
    assert_eq!(
        error["error"]["message"],
        "messages[0].content[0].type: \"image\" is not supported here"
    );
    let other =
        json!({ "model": "other", "messages": [{ "role": "user", "content": "x" }] }).to_string();
    let (status, error) = send(MESSAGES, "x-api-key: secret", &other);
    assert_eq!((status, &error["error"]["type"]), (404, &json!("not_found_error")));
    let (status, error) = send(RESPONSES, "x-api-key: secret", &json!({ "input": 7 }).to_string());
    assert_eq!((status, &error["error"]["param"]), (400, &json!("input")));
    let long = json!({ "input": "word ".repeat(300) }).to_string();
    let (status, error) = send(RESPONSES, "authorization: Bearer secret", &long);
    assert_eq!((status, &error["error"]["code"]), (400, &json!("context_length_exceeded")));
}
