//! What `--json` prints is as docs/events.schema.json describes it: of files that come, that fail,
//! that are there already, of lists, of trees, and of commands that cannot begin.

use serde_json::Value;

use crate::support::net::{honest, server, sha256, url};
use crate::support::{Home, Ran};
use swath_netlab::faulty::{Behaviour, Content};

/// The part of JSON Schema that the schema uses; answers what is wrong at which place.
fn check(root: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.trim_start_matches("#/$defs/");
        return check(root, &root["$defs"][name], value, place);
    }
    for key in ["oneOf", "anyOf"] {
        if let Some(all) = schema[key].as_array() {
            let wrong: Vec<String> =
                all.iter().filter_map(|one| check(root, one, value, place).err()).collect();
            let right = all.len() - wrong.len();
            let is_met = if key == "oneOf" { right == 1 } else { right > 0 };
            // The alternative that is meant is the one of its event.
            let name = &value["event"];
            let meant = all.iter().find(|one| &one["properties"]["event"]["const"] == name);
            let why = meant.and_then(|one| check(root, one, value, place).err());
            return if is_met { Ok(()) } else { Err(why.unwrap_or_else(|| wrong.join("; "))) };
        }
    }
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("type {other}"),
    };
    let fits = match &schema["type"] {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().any(|name| is(name.as_str().unwrap())),
        _ => true,
    };
    if !fits {
        return Err(format!("{place}: {value} is no {}", schema["type"]));
    }
    if schema["enum"].as_array().is_some_and(|all| !all.contains(value)) {
        return Err(format!("{place}: {value} is none of {}", schema["enum"]));
    }
    if schema.get("const").is_some_and(|only| only != value) {
        return Err(format!("{place}: {value} is not {}", schema["const"]));
    }
    if schema["minimum"].as_f64().zip(value.as_f64()).is_some_and(|(least, it)| it < least) {
        return Err(format!("{place}: {value} is too small"));
    }
    if let Some(fields) = value.as_object() {
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap();
            if !fields.contains_key(name) {
                return Err(format!("{place}: {name} is missing"));
            }
        }
        for (name, field) in fields {
            match schema["properties"].get(name) {
                Some(of_field) => check(root, of_field, field, &format!("{place}.{name}"))?,
                None if schema["additionalProperties"] == Value::Bool(false) => {
                    return Err(format!("{place}: {name} is not described"));
                }
                None => {}
            }
        }
    }
    for item in value.as_array().into_iter().flatten().filter(|_| schema["items"].is_object()) {
        check(root, &schema["items"], item, &format!("{place}[]"))?;
    }
    Ok(())
}

/// Checks every line against the schema; returns the names of the events.
#[track_caller]
pub fn fit(ran: &Ran) -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/events.schema.json");
    let schema: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut names = Vec::new();
    for line in ran.out().lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        if let Err(why) = check(&schema, &schema, &event, "event") {
            panic!("{why}\n{line}");
        }
        names.push(event["event"].as_str().unwrap().to_owned());
    }
    names
}

#[test]
fn every_event_is_as_it_is_described() {
    let content = Content::random(911, 9_000_000);
    let (good, slow) = (honest(&content), server(&content, Behaviour::rate(4_000_000)));
    let slower = server(&content, Behaviour::rate(2_000_000));
    let gone = server(&content, Behaviour::Status { code: 404, retry_after_s: None });
    let home = Home::new();
    let digest = sha256(&content);
    let of_two = home.run(["get", "--json", &url(&slow), &url(&slower), "--digest", &digest]);
    let names = fit(of_two.code_is(0));
    for name in ["started", "opened", "source", "swath", "progress", "finished"] {
        assert!(names.iter().any(|it| it == name), "{name}: {names:?}");
    }
    let again = home.run(["get", "--json", &url(&good), "--digest", &digest]);
    assert!(fit(again.code_is(0)).contains(&"present".to_owned()), "{again}");
    let unverified = home.run(["get", "--json", &url(&good), "-o", "other"]);
    assert!(fit(unverified.code_is(0)).contains(&"unverified".to_owned()), "{unverified}");
    let failed = home.run(["get", "--json", &url(&gone), "-o", "none"]);
    assert!(fit(&failed).contains(&"failed".to_owned()), "{failed}");
    let list = format!("{}\n out=a\n{}\n out=b\n", url(&good), url(&gone));
    let list = home.swath(["get", "--json", "-i", "-", "-d", "list"]).input(list).run();
    let names = fit(&list);
    assert_eq!(names.last().map(String::as_str), Some("list_finished"), "{list}");
    home.write("tree/a", "alpha");
    home.write("tree/sub/b", vec![7; 700_000]);
    let tree = home.serve(&["tree", "--anonymous", "--plain"]);
    let copied = home.run(["cp", "--json", &tree.at("/"), "copy"]);
    assert!(fit(copied.code_is(0)).contains(&"finished".to_owned()), "{copied}");
}

/// A program that read events heard nothing of options or input that could not be used.
#[test]
fn a_command_that_cannot_begin_says_so_in_an_event() {
    let home = Home::new();
    for args in [
        &["get", "--json", "--nonsense", "http://127.0.0.1:9/a"][..],
        &["get", "--json", "-i", "missing.list"],
        &["get", "--json", "ftp://127.0.0.1/a"],
        &["cp", "--json", "--nonsense", "a", "b"],
    ] {
        let ran = home.run(args);
        let names = fit(&ran);
        assert_ne!(ran.code(), 0, "{ran}");
        assert_eq!(names.last().map(String::as_str), Some("error"), "{ran}");
        let last: Value = serde_json::from_str(ran.out().lines().last().unwrap()).unwrap();
        assert_eq!(last["exit"], ran.code(), "{ran}");
        assert!(!last["error"].as_str().unwrap().is_empty(), "{ran}");
    }
    // Copies have an event of their own for each way to end.
    let ran = home.run(["cp", "--json", "/nowhere/at/all", "there"]);
    assert_eq!(fit(&ran), ["failed"], "{ran}");
}
