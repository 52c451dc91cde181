//! Rules from text: no text is more than an error, and a rule that is read is written so that it is read again.
#![no_main]

use batchloom::batching::Rule;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(rule) = text.parse::<Rule>() {
        let written = rule.to_string();
        let again: Rule = written.parse().unwrap_or_else(|error| panic!("{written}: {error}"));
        assert_eq!(again.to_string(), written);
        let json = serde_json::to_string(&rule).expect("a rule as JSON");
        let back: Rule = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{json}: {error}"));
        assert_eq!(back.to_string(), written);
    }
    let _ = serde_json::from_str::<Rule>(text);
});
