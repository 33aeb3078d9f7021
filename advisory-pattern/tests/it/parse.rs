//! Every literal is parsed as documented, and every mistake is answered with what to write.

use advisory_pattern::{Filter, MAX_BYTES, Part, Placeholder, Shape, parse};
use proptest::prelude::*;

use crate::{pattern, rows};

/// The messages with which the text is refused, one per line.
fn refusals(text: &str) -> Vec<String> {
    let errors = parse(text).expect_err(text);
    errors.iter().map(ToString::to_string).collect()
}

fn only_placeholder(text: &str) -> Placeholder {
    match &pattern(text).parts[..] {
        [Part::Placeholder(placeholder)] => placeholder.clone(),
        parts => panic!("{text}: {parts:?}"),
    }
}

#[test]
fn placeholder_has_path_shape_and_filters() {
    let placeholder = only_placeholder("< req.day : text | display|trim >");
    assert_eq!(placeholder.source, " req.day : text | display|trim ");
    assert_eq!(placeholder.path, ["req", "day"]);
    assert_eq!(placeholder.name(), "req.day");
    assert_eq!(placeholder.shape, Some(Shape::Text));
    assert_eq!(placeholder.filters, [Filter::Display, Filter::Trim]);
    assert!(!placeholder.slice);
}

#[test]
fn paths_accept_self_indexes_raw_identifiers_and_any_script() {
    assert_eq!(only_placeholder("<self.tenant>").path, ["self", "tenant"]);
    assert_eq!(only_placeholder("<id.0>").path, ["id", "0"]);
    assert_eq!(
        only_placeholder("<r#type.r#match>").path,
        ["r#type", "r#match"]
    );
    assert_eq!(only_placeholder("<größe._x1>").path, ["größe", "_x1"]);
}

#[test]
fn star_takes_a_slice_with_shape_and_filters() {
    let ids = only_placeholder("<req.ids*: uuid>");
    assert!(ids.slice);
    assert_eq!(ids.shape, Some(Shape::Uuid));
    assert!(only_placeholder("<names * |trim|lower>").slice);
}

#[test]
fn doubled_bracket_is_text_and_so_is_a_lone_closing_one() {
    let parts = pattern("a<<b>c<<<d>>{ x y}{").parts;
    let [Part::Text(first), Part::Placeholder(d), Part::Text(last)] = &parts[..] else {
        panic!("{parts:?}");
    };
    assert_eq!(
        (first.as_str(), d.name().as_str(), last.as_str()),
        ("a<b>c<", "d", ">{ x y}{")
    );
}

const MISTAKES: &str = r#"
 => the key pattern is empty: write a text such as `"nightly-report"`
a:<> => `<>` is empty: write a parameter's name, such as `<tenant_id>`
<  > => `<  >` is empty: write a parameter's name, such as `<tenant_id>`
<: uuid> => `<: uuid>` is empty: write a parameter's name, such as `<tenant_id>`
<*> => `<*>` is empty: write a parameter's name, such as `<tenant_id>`
a:<day => `<day` is not closed: write `>` after the name, or `<<` for a literal `<`
<a<b>> => `<a` is not closed before the next `<`: write `>` after the name, or `<<` for a literal `<`
<a+b> => `a+b` is not a path: compute it in `with(name = …)` and write `<name>`
<f(x)> => `f(x)` is not a path: compute it in `with(name = …)` and write `<name>`
<Self::ID> => `Self::ID` is not a path: compute it in `with(name = …)` and write `<name>`
<x.await> => `x.await` is not a path: compute it in `with(name = …)` and write `<name>`
<a b> => `a b` is not a path: compute it in `with(name = …)` and write `<name>`
<0> => `0` is not a path: compute it in `with(name = …)` and write `<name>`
<a.01> => `a.01` is not a path: compute it in `with(name = …)` and write `<name>`
<a.self> => `a.self` is not a path: compute it in `with(name = …)` and write `<name>`
<type> => `type` is a Rust keyword: write `r#type`
<*ids> => `*ids` has its `*` in the wrong place: write `<ids*>`
<a: uid> => unknown shape `uid`: did you mean `uuid`?
<a: Uuid> => unknown shape `Uuid`: did you mean `uuid`?
<a: i64> => unknown shape `i64`: did you mean `int`?
<a: String> => unknown shape `String`: did you mean `text`?
<a: money> => unknown shape `money`: write one of `int`, `uint`, `uuid`, `date`, `time`, `datetime`, `timestamp`, `bool`, `char`, `text`, `raw`
<a:> => missing shape: write one of `int`, `uint`, `uuid`, `date`, `time`, `datetime`, `timestamp`, `bool`, `char`, `text`, `raw`
<a|lowr> => unknown filter `lowr`: did you mean `lower`?
<a|sha1> => unknown filter `sha1`: write one of `trim`, `lower`, `raw`, `display`
<a|trim|> => missing filter: write one of `trim`, `lower`, `raw`, `display`
<a|trim|lower|trim> => filter `trim` is given twice: write it once
<a: int|trim> => filter `trim` does not fit the shape `int`: leave it out
<a: uuid|lower> => filter `lower` does not fit the shape `uuid`: leave it out
<a: date|display> => filter `display` does not fit the shape `date`: leave it out
<a: date|raw> => filter `raw` does not fit the shape `date`: leave it out
<a: int: uuid> => the shape is given twice: write `int` or `uuid`
<a|trim: text> => `: text` comes after a filter: write it before the first `|`
<a*>:<b*> => `<b*>` is a second slice: write at most one `*` in a key pattern
{tenant_id}:x => `{tenant_id}` is plain text in a key pattern: write `<tenant_id>`
{req.day:?} => `{req.day:?}` is plain text in a key pattern: write `<req.day>`
{} => `{}` is plain text in a key pattern: write the value's name, such as `<tenant_id>`
user:$plan => `$plan` is plain text in a key pattern: write `<plan>`
user:${plan}:x => `${plan}` is plain text in a key pattern: write `<plan>`
user:#{plan} => `#{plan}` is plain text in a key pattern: write `<plan>`
user:%(plan)s => `%(plan)s` is plain text in a key pattern: write `<plan>`
/users/:id => `:id` is plain text in a key pattern: write `<id>`
:id => `:id` is plain text in a key pattern: write `<id>`
<a>:%s => `%s` is plain text in a key pattern: write the value's name, such as `<tenant_id>`
user:%d:x => `%d` is plain text in a key pattern: write the value's name, such as `<tenant_id>`
user:$1 => `$1` is plain text in a key pattern: write the value's name, such as `<tenant_id>`
user:? => `?` is plain text in a key pattern: write the value's name, such as `<tenant_id>`
? => `?` is plain text in a key pattern: write the value's name, such as `<tenant_id>`
user:{} => `{}` is plain text in a key pattern: write the value's name, such as `<tenant_id>`
"#;

#[test]
fn each_mistake_says_what_to_write() {
    for [text, refusal] in rows(MISTAKES) {
        assert_eq!(refusals(text), [refusal], "{text}");
    }
}

#[test]
fn all_mistakes_of_a_literal_are_reported_in_its_order() {
    let text = "{a}:<>:<b+c: uid|trm>:<d*>:<e*>:<f";
    let starts: Vec<_> = refusals(text)
        .iter()
        .map(|m| m.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(
        starts,
        [
            "`{a}`", "`<>`", "`b+c`", "unknown", "unknown", "`<e*>`", "`<f`"
        ]
    );
}

#[test]
fn range_of_a_mistake_is_the_wrong_part_of_the_text() {
    let text = "é:<a: uid>:<b|trm>:{c}";
    let wrong = parse(text).unwrap_err();
    let wrong: Vec<_> = wrong.iter().map(|error| &text[error.range()]).collect();
    assert_eq!(wrong, ["uid", "trm", "{c}"]);
}

#[test]
fn long_pattern_is_refused_by_its_text_and_paths_alone() {
    let most = "a".repeat(MAX_BYTES - 5);
    assert!(parse(&format!("{most}<    bcd    : timestamp>")).is_ok());
    let message = "the key pattern has 513 bytes: write at most 512";
    assert_eq!(refusals(&format!("{most}<bcde>")), [message]);
}

/// Texts that come close to patterns.
fn near_pattern() -> impl Strategy<Value = String> {
    let words = [
        "<", "<", ">", ">", "<<", "a", "b.c", "self", ".", "0", ":", ": uuid", ": text", "|",
        "|trim", "|raw", "|display", "*", "{", "}", " ", "é", "r#type", "type", "::", "%", "-",
        "x:",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..16)
        .prop_map(|words| words.concat())
}

fn is_answered(text: &str) -> Result<(), TestCaseError> {
    match parse(text) {
        Ok(pattern) => {
            let printed = pattern.to_string();
            prop_assert_eq!(parse(&printed), Ok(pattern.clone()));
            let shaped = pattern.shaped(|_| Shape::Int);
            prop_assert_eq!(parse(&shaped.to_string()), Ok(shaped.clone()));
            prop_assert_eq!(shaped.shaped(|_| Shape::Uuid), shaped.clone());
            let language = pattern.language(|_| Shape::Int);
            prop_assert_eq!(shaped.language(|_| Shape::Uuid), language);
        }
        Err(errors) => {
            prop_assert!(!errors.is_empty());
            for error in errors {
                prop_assert!(text.get(error.range()).is_some(), "{:?}", error);
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_text_is_read_or_refused(text: String) {
        is_answered(&text)?;
    }

    #[test]
    fn printed_pattern_parses_back_to_an_equal_one(text in near_pattern()) {
        is_answered(&text)?;
    }
}

#[test]
fn texts_close_to_placeholders_of_other_languages_are_accepted() {
    let accepted = "cost:$, 100%, 100%25, 50%sale, %(a plan)s, %(plan)q, user:id, worker::cleanup, \
                    a:<b>:c, why?, #1, a$, {";
    for text in accepted.split(", ") {
        assert!(parse(text).is_ok(), "{text}");
    }
}
