//! Comparisons of errors with what they are to be: the kind, and values and names that the message has.

use batchloom::{Error, Kind};

/// Checks that a result is an error of a kind whose message has each of `words`.
#[track_caller]
pub(crate) fn refused<T>(outcome: Result<T, Error>, kind: Kind, words: &[&str]) {
    assert!(outcome.is_err(), "expected an error of kind {kind:?} that names {words:?}");
    let error = outcome.map(drop).unwrap_err();
    assert!(
        is(&error, kind, words),
        "expected an error of kind {kind:?} that names {words:?}; found {error:?}"
    );
}

/// Returns true if an error is of a kind, and its message has each of `words`.
pub(crate) fn is(error: &Error, kind: Kind, words: &[&str]) -> bool {
    let text = error.to_string();
    error.kind() == kind && words.iter().all(|word| has(&text, word))
}

/// Returns true if a text has some words, which are no part of longer words or numbers there.
fn has(text: &str, words: &str) -> bool {
    let goes_on =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    text.match_indices(words).any(|(place, _)| {
        let (before, after) = (&text[..place], &text[place + words.len()..]);
        !goes_on(before.chars().next_back()) && !goes_on(after.chars().next())
    })
}

#[test]
fn words_are_not_found_in_others() {
    let text = "sample 12 has size 3; expected max_tokens";
    assert!(has(text, "12") && has(text, "size 3") && has(text, "max_tokens"));
    assert!(!has(text, "1") && !has(text, "tokens") && !has(text, "sizes"));
}

/// Facts of errors, where there are such.
#[test]
fn errors_tell_facts() {
    use batchloom::batching::{Packing, Sizes};
    use batchloom::{Plan, Tensor, TensorDataset};

    let facts =
        |error: &Error| (error.sample(), error.field().map(str::to_owned), error.option().map(str::to_owned));
    let some = |text: &str| Some(text.to_owned());
    let error = Plan::builder(3).batch_size(0).build().unwrap_err();
    assert_eq!(facts(&error), (None, None, some("batch_size")));
    let error = Plan::builder(3).num_samples(0).build().unwrap_err();
    assert_eq!(facts(&error), (None, None, some("num_samples")));
    let plan = Plan::builder(2).sizes(Sizes::new(vec![1, 9])).rule(Packing::new(4).unwrap());
    assert_eq!(facts(&plan.build().unwrap_err()), (Some(1), None, some("max_tokens")));
    let error = TensorDataset::new([("x", Tensor::from_vec(vec![0_u8], &[]).unwrap())]).unwrap_err();
    assert_eq!(facts(&error), (None, some("x"), None));
}

#[test]
fn errors_are_one_word_wide_and_equal_if_they_say_the_same() {
    assert_eq!(size_of::<Error>(), size_of::<usize>());
    assert_eq!(size_of::<Result<(), Error>>(), size_of::<usize>());
    let error = |bytes| Error::out_of_memory(bytes, "none is left".to_owned());
    let one = error(1);
    assert_eq!(one, one.clone());
    assert_ne!(one, error(2));
}
