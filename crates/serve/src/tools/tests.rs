//! Answers in each format, given whole and byte by byte, and their separation into parts.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::grammar::Calls;
use super::*;
use warploom_llm::chat::{Message, Role, ToolCall};
use warploom_llm::structure::{Grammar, Structure};

fn tool(name: &str, parameters: Value) -> Tool {
    let json =
        json!({ "type": "function", "function": { "name": name, "parameters": parameters } });
    Tool { name: name.into(), parameters: Some(parameters), strict: false, json: json.to_string() }
}

fn tools() -> Vec<Tool> {
    let weather = json!({"type": "object", "properties": {"city": {"type": "string"},
        "days": {"type": "integer"}}, "required": ["city"]});
    vec![tool("weather", weather), tool("now", json!({"type": "object", "properties": {}}))]
}

/// The parts of an answer: reasoning, content, and the names and arguments of calls.
#[derive(Debug, Default, PartialEq)]
struct Parts {
    reasoning: String,
    content: String,
    calls: Vec<(String, String)>,
}

fn parts(deltas: Vec<Delta>) -> Parts {
    let mut parts = Parts::default();
    for delta in deltas {
        match delta {
            Delta::Reasoning(text) => parts.reasoning.push_str(&text),
            Delta::Content(text) => parts.content.push_str(&text),
            Delta::Call(name) => parts.calls.push((name, String::new())),
            Delta::Arguments(text) => parts.calls.last_mut().unwrap().1.push_str(&text),
        }
    }
    parts
}

/// A format, an answer, its content and its calls.
type Row = (&'static Format, &'static str, &'static str, Vec<(String, String)>);

/// Separates a text, in pieces of several sizes, which must not matter.
fn split(thoughts: Thoughts, format: Option<&'static Format>, text: &str) -> Parts {
    let run = |size: usize| {
        let calls = format.map(|format| (format, tools()));
        let mut splitter = Splitter::new(thoughts, calls);
        let chars: Vec<char> = text.chars().collect();
        let pieces = chars.chunks(size).map(|piece| piece.iter().collect::<String>());
        let mut deltas: Vec<Delta> = pieces.flat_map(|piece| splitter.push(&piece)).collect();
        deltas.extend(splitter.finish());
        parts(deltas)
    };
    let whole = run(text.chars().count().max(1));
    for size in [1, 2, 3, 7] {
        assert_eq!(run(size), whole, "in pieces of {size}: {text:?}");
    }
    whole
}

fn format(template: &str) -> &'static Format {
    Format::of_template(template).unwrap()
}

fn hermes() -> &'static Format {
    format("<tool_call>")
}

#[test]
fn templates_show_their_format() {
    for (template, body) in [
        ("[TOOL_CALLS] [ARGS]", Body::Named("[ARGS]")),
        ("[TOOL_CALLS]", Body::List("arguments")),
        ("<tool_call>", Body::Json("arguments")),
        ("<tool_call> <function=a> <parameter=b>", Body::Xml),
        ("<|python_tag|> \"parameters\"", Body::Json("parameters")),
        ("<|channel|> <|message|> <|call|>", Body::Harmony),
    ] {
        assert_eq!(format(template).body, body, "{template}");
    }
    assert!(Format::of_template("{{ messages }}").is_none());
    let id = format("[TOOL_CALLS]").id(7);
    assert!(id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()), "{id}");
    assert_ne!(id, format("[TOOL_CALLS]").id(8));
    assert!(hermes().id(7).starts_with("call_"));
}

#[test]
fn calls_of_hermes_are_found_between_text() {
    let call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"K\u{f6}ln </tool_call> }\"}}\n</tool_call>";
    let arguments = "{\"city\": \"K\u{f6}ln </tool_call> }\"}";
    let one = || ("weather".to_owned(), arguments.to_owned());
    for (text, content, calls) in [
        ("Plain < text\n".to_owned(), "Plain < text\n", vec![]),
        (call.to_owned(), "", vec![one()]),
        (format!("Let me see.\n{call}"), "Let me see.", vec![one()]),
        (format!("{call}\n{call}"), "", vec![one(), one()]),
        (format!("{call}\nDone. "), "Done. ", vec![one()]),
        ("a <tool_cal b".to_owned(), "a <tool_cal b", vec![]),
        // Other orders and forms.
        (
            "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>".into(),
            "",
            vec![("f".into(), "{\"a\":1}".into())],
        ),
        (
            "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>".into(),
            "",
            vec![("f".into(), "{\"a\": 1}".into())],
        ),
        (
            "<tool_call>{\"name\":\"f\",\"parameters\":{}}</tool_call>".into(),
            "",
            vec![("f".into(), "{}".into())],
        ),
        ("<tool_call>{\"name\": \"f\"}</tool_call>".into(), "", vec![("f".into(), "{}".into())]),
        // Not a call, or one that does not end.
        ("<tool_call>what?</tool_call>".into(), "<tool_call>what?</tool_call>", vec![]),
        ("<tool_call>{\"name\": \"we".into(), "<tool_call>{\"name\": \"we", vec![]),
        (
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"".into(),
            "",
            vec![("f".into(), "{\"a\"".into())],
        ),
        (
            "<tool_call>{\"name\": \"f\", \"arguments\": {}}".into(),
            "",
            vec![("f".into(), "{}".into())],
        ),
    ] {
        let got = split(Thoughts::None, Some(hermes()), &text);
        assert_eq!((got.content.as_str(), got.calls), (content, calls), "{text:?}");
    }
    // Without tools, all of it is text.
    assert_eq!(split(Thoughts::None, None, call).content, call);
}

#[test]
fn arguments_arrive_before_the_call_ends() {
    let mut splitter = Splitter::new(Thoughts::None, Some((hermes(), tools())));
    let begin = splitter.push("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"ci");
    assert_eq!(begin, [Delta::Call("weather".into()), Delta::Arguments("{\"ci".into())]);
    assert_eq!(splitter.push("ty\": \"K"), [Delta::Arguments("ty\": \"K".into())]);
    assert_eq!(splitter.push("\"}}\n</tool"), [Delta::Arguments("\"}".into())]);
    assert_eq!(splitter.push("_call>"), []);
    assert_eq!(splitter.finish(), []);
}

#[test]
fn calls_of_the_other_formats_are_found() {
    let weather = |arguments: &str| ("weather".to_owned(), arguments.to_owned());
    let llama = format("python_tag \"parameters\"");
    let list = format("[TOOL_CALLS]");
    let named = format("[TOOL_CALLS][ARGS]");
    let xml = format("<tool_call><function=<parameter=");
    let rows: Vec<Row> = vec![
        (
            llama,
            "{\"name\": \"weather\", \"parameters\": {\"city\": \"}\"}}",
            "",
            vec![weather("{\"city\": \"}\"}")],
        ),
        (
            llama,
            "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}; {\"name\": \"weather\", \"parameters\": {\"days\": 2}}",
            "",
            vec![("now".into(), "{}".into()), weather("{\"days\": 2}")],
        ),
        // JSON for the reader.
        (
            llama,
            "{\"name\": \"Ann\", \"parameters\": {}}",
            "{\"name\": \"Ann\", \"parameters\": {}}",
            vec![],
        ),
        (llama, "{\"a\": 1} and {\"b\": 2}", "{\"a\": 1} and {\"b\": 2}", vec![]),
        (llama, "Text {\"name\": \"weather\"", "Text {\"name\": \"weather\"", vec![]),
        (
            list,
            "[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"days\": 1}}, {\"name\": \"now\", \"arguments\": {}}]",
            "",
            vec![weather("{\"days\": 1}"), ("now".into(), "{}".into())],
        ),
        (list, "Sure. [TOOL_CALLS] what", "Sure.[TOOL_CALLS] what", vec![]),
        (
            named,
            "[TOOL_CALLS]weather[ARGS]{\"days\": 1}[TOOL_CALLS]now[CALL_ID]abc[ARGS]{}",
            "",
            vec![weather("{\"days\": 1}"), ("now".into(), "{}".into())],
        ),
        (
            xml,
            "I look.\n<tool_call>\n<function=weather>\n<parameter=city>\n12\nK\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
            "I look.",
            vec![weather("{\"city\":\"12\\nK\",\"days\":3}")],
        ),
        (
            xml,
            "<tool_call>\n<function=now>\n</function>\n</tool_call>",
            "",
            vec![("now".into(), "{}".into())],
        ),
        (
            xml,
            "<tool_call>\nno function</tool_call>",
            "<tool_call>\nno function</tool_call>",
            vec![],
        ),
    ];
    for (format, text, content, calls) in rows {
        let got = split(Thoughts::None, Some(format), text);
        assert_eq!((got.content.as_str(), got.calls), (content, calls), "{text:?}");
    }
}

#[test]
fn reasoning_is_separated() {
    for (thoughts, text, reasoning, content) in [
        (Thoughts::Maybe, "<think>\nHm.\n</think>\n\nYes.", "Hm.", "Yes."),
        (Thoughts::Maybe, "\n<think>\n\n</think>\n\nYes.", "", "Yes."),
        (Thoughts::Maybe, "Yes <think> no.", "", "Yes <think> no."),
        (Thoughts::Open, "Hm < x\n</think>Yes.", "Hm < x", "Yes."),
        (Thoughts::Open, "Hm", "Hm", ""),
        (Thoughts::None, "<think>a</think>b", "", "<think>a</think>b"),
        (Thoughts::Maybe, "<thi", "", "<thi"),
    ] {
        for format in [None, Some(hermes())] {
            let got = split(thoughts, format, text);
            let got = (got.reasoning.as_str(), got.content.as_str());
            assert_eq!(got, (reasoning, content), "{thoughts:?} {text:?}");
        }
    }
    let text =
        "<think>I call.</think>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let got = split(Thoughts::Maybe, Some(hermes()), text);
    assert_eq!((got.reasoning.as_str(), got.content.as_str()), ("I call.", ""));
    assert_eq!(got.calls, [("now".to_owned(), "{}".to_owned())]);
}

/// No text panics, and none of it is lost or written twice.
#[test]
fn any_text_is_separated_the_same_in_all_pieces() {
    let words = [
        "<tool_call>",
        "</tool_call>",
        "{\"name\": \"",
        "weather",
        "\", \"arguments\": ",
        "{",
        "}",
        "\"",
        "\\",
        "[TOOL_CALLS]",
        "[ARGS]",
        "<function=",
        "<parameter=",
        "</parameter>",
        "</function>",
        ">",
        "[",
        "]",
        ",",
        "\n",
        " ",
        "<think>",
        "</think>",
        "\u{e9}",
        "\"parameters\": ",
        "<|python_tag|>",
        "a",
    ];
    let mut seed = 7u32;
    let mut draw = |below: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8) as usize % below
    };
    let templates = [
        "<tool_call>",
        "[TOOL_CALLS]",
        "[TOOL_CALLS][ARGS]",
        "<tool_call><function=<parameter=",
        "python_tag \"parameters\"",
    ];
    let mut called = 0;
    for round in 0..3000 {
        let text: String = (0..draw(14)).map(|_| words[draw(words.len())]).collect();
        let thoughts = [Thoughts::None, Thoughts::Maybe, Thoughts::Open][round % 3];
        let got = split(thoughts, Some(format(templates[round % 5])), &text);
        called += got.calls.len();
    }
    assert!(called > 10, "{called}");
}

#[test]
fn grammars_name_what_cannot_be_written() {
    let controls = HashMap::from([("[TOOL_CALLS]".to_owned(), 5u32)]);
    let lark = |format: &'static Format, tools: &[Tool], after_marker: bool| {
        let loose = vec![false; tools.len()];
        let calls = Calls {
            format,
            tools,
            loose: &loose,
            parallel: true,
            after_marker,
            controls: &controls,
        };
        calls.lark()
    };
    let text = lark(hermes(), &tools(), false).unwrap();
    assert!(text.starts_with("start: \"<tool_call>\" any"), "{text}");
    assert!(text.contains("call_0 | call_1"), "{text}");
    assert!(lark(hermes(), &tools(), true).unwrap().starts_with("start: any\n"));
    assert!(lark(format("[TOOL_CALLS]"), &tools(), false).unwrap().starts_with("start: <[5]> "));
    let wrong = [tool("f", json!({"type": "array"}))];
    let error = lark(hermes(), &wrong, false).unwrap_err().to_string();
    assert!(error.contains("type must be \"object\", is \"array\""), "{error}");
}

/// The compiler accepts the grammar of each format, which accepts calls and refuses others.
#[test]
fn grammars_accept_the_calls_of_their_format() {
    let structure = Structure::new(&crate::test_rig::byte_tokenizer()).unwrap();
    let compile = |format: &'static Format, after_marker: bool, parallel: bool| {
        let (tools, controls) = (tools(), HashMap::new());
        let loose = [false, false];
        let calls = Calls {
            format,
            tools: &tools,
            loose: &loose,
            parallel,
            after_marker,
            controls: &controls,
        };
        structure.compile(&Grammar::Lark(calls.lark().unwrap())).unwrap()
    };
    let xml = "\n<function=weather>\n<parameter=city>\nK <b>\n\n</parameter>\n<parameter=days>\n3\n\
               </parameter>\n</function>\n</tool_call>";
    // The template; the marker and a call after it; another call; what is wrong.
    let rows = [
        (
            "<tool_call>",
            "<tool_call>",
            "\n{\"name\": \"weather\", \"arguments\": {\"city\": \"K\"}}\n</tool_call>",
            "\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
            "\n{\"name\": \"weather\", \"arguments\": {\"days\": 1}}\n</tool_call>",
        ),
        (
            "[TOOL_CALLS]",
            "[TOOL_CALLS]",
            " [{\"name\": \"weather\", \"arguments\": {\"city\": \"K\"}}]",
            "",
            " [{\"name\": \"weather\", \"arguments\": 1}]",
        ),
        (
            "[TOOL_CALLS][ARGS]",
            "[TOOL_CALLS]",
            "weather[ARGS]{\"city\": \"K\", \"days\": 2}",
            "[TOOL_CALLS]now[ARGS]{}",
            "winter[ARGS]{}",
        ),
        (
            "<tool_call><function=<parameter=",
            "<tool_call>",
            xml,
            "\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
            "\n<function=weather>\n<parameter=days>\nmany\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            "python_tag \"parameters\"",
            "{\"name\": \"",
            "weather\", \"parameters\": {\"city\": \"K\"}}",
            "",
            "weather\", \"parameters\": {}}",
        ),
        (
            "<|channel|><|message|><|call|>",
            "<|channel|>commentary to=functions.",
            "weather <|constrain|>json<|message|>{\"city\": \"K\"}<|call|>",
            "",
            "weather<|message|>{\"days\": 1}<|call|>",
        ),
    ];
    for (template, marker, call, more, wrong) in rows {
        let format = format(template);
        for (text, after_marker) in [(format!("{marker}{call}"), false), (call.to_owned(), true)] {
            let mut constraint = compile(format, after_marker, false);
            assert!(constraint.accept_text(text.as_bytes()), "{text}");
            assert!(constraint.may_end() && constraint.is_finished(), "{text}");
            // What the grammar allows is read as a call.
            let whole = format!("{marker}{call}");
            let thoughts = match format.body {
                Body::Harmony => Thoughts::Channels,
                _ => Thoughts::None,
            };
            assert_eq!(split(thoughts, Some(format), &whole).calls[0].0, "weather");
        }
        assert!(!compile(format, true, false).accept_text(wrong.as_bytes()), "{wrong}");
        let mut several = compile(format, false, true);
        let text = format!("{marker}{call}{more}");
        assert!(several.accept_text(text.as_bytes()) && several.may_end(), "{text}");
    }
}

/// With control tokens, a forced message of gpt-oss may come after one with reasoning.
#[test]
fn forced_messages_of_harmony_may_follow_reasoning() {
    let structure = Structure::new(&crate::test_rig::byte_tokenizer()).unwrap();
    let names = ["<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|call|>", "<|constrain|>"];
    // Bytes that no text has.
    let controls: HashMap<String, u32> =
        (1..).zip(names).map(|(id, n)| (n.to_owned(), id)).collect();
    let tools = tools();
    let harmony = format("<|channel|><|message|><|call|>");
    let calls = Calls {
        format: harmony,
        tools: &tools,
        loose: &[false, false],
        parallel: true,
        after_marker: false,
        controls: &controls,
    };
    let schema = Grammar::lark_of_schema("{\"type\": \"integer\"}").unwrap();
    let answer = format!("start: {}\ncontent: {schema}\n", calls.content("content"));
    let [call, answer] = [calls.lark().unwrap(), answer];
    let analysis = "\u{1}analysis\u{2}I look.\nOr not?\u{3}\u{4}assistant";
    for (rules, text, is_right) in [
        (&call, "\u{1}commentary to=functions.now \u{6}json\u{2}{}\u{5}", true),
        (&call, "\u{1}commentary to=functions.now\u{2}{}\u{5}", true),
        (&call, "\u{1}final\u{2}", false),
        (&call, "\u{1}commentary to=functions.never", false),
        (&answer, "\u{1}final\u{2}42", true),
        (&answer, "\u{1}final\u{2}no", false),
        (&answer, "no", false),
    ] {
        for before in ["", analysis] {
            let mut constraint = structure.compile(&Grammar::Lark(rules.clone())).unwrap();
            let text = format!("{before}{text}");
            let got = text.bytes().try_for_each(|byte| constraint.accept(u32::from(byte)));
            assert_eq!(got.is_ok() && constraint.may_end(), is_right, "{text:?}: {got:?}");
        }
    }
}

#[test]
fn tools_become_text_for_templates_without_them() {
    let mut call = Message::new(Role::Assistant, "");
    call.tool_calls.push(ToolCall::new("1", "weather", "{\"city\": \"Rome\"}"));
    let messages = [
        Message::new(Role::User, "Is it hot?"),
        call,
        Message::new(Role::Tool, "31"),
        Message::new(Role::Tool, "32"),
        Message::new(Role::User, "Thanks."),
    ];
    assert!(plain::has_calls(&messages) && !plain::has_calls(&messages[..1]));
    let got = plain::written(&messages, &tools());
    assert_eq!(got.len(), 5);
    assert_eq!(got[0].role, Role::System);
    assert!(got[0].content.contains("\"name\":\"weather\""), "{}", got[0].content);
    let want =
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";
    assert_eq!(got[2], Message::new(Role::Assistant, want));
    let want = "<tool_response>\n31\n</tool_response>\n<tool_response>\n32\n</tool_response>";
    assert_eq!(got[3], Message::new(Role::User, want));
}
