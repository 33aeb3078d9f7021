//! Suggestions end the collision, and change no other lock.
//!
//! Each suggestion is taken out of the message's text, written into the site, read again and
//! compared with every lock of the program.

use advisory_pattern::{
    Advice, Derivation, Edit, Guess, Lock, LockedKey, Pattern, Placeholder, Shape, Side, advice,
    parse,
};

/// A lock site as a user wrote it.
#[derive(Clone, Debug)]
struct Site {
    key: String,
    name: Option<String>,
    function: String,
    /// The values of its placeholders.
    values: Vec<Value>,
}

#[derive(Clone, Copy, Debug)]
struct Value {
    placeholder: &'static str,
    ty: Type,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    /// The macro knows it.
    Known(Shape),
    /// A newtype, with the shape that it has.
    Newtype(&'static str, Shape),
    /// A newtype with a declaration that the macro has seen.
    Declared(&'static str, Shape),
}

impl Site {
    fn pattern(&self) -> Pattern {
        let shape = |placeholder: &Placeholder| match self.ty(&placeholder.name()) {
            Type::Known(shape) => shape,
            Type::Newtype(..) | Type::Declared(..) => Shape::Text,
        };
        parse(&self.key).expect("a pattern").shaped(shape)
    }

    fn ty(&self, placeholder: &str) -> Type {
        let mut values = self.values.iter();
        let value = values.find(|value| value.placeholder == placeholder);
        value.expect("one of the values").ty
    }

    fn lock(&self) -> Lock {
        let key = LockedKey::Pattern(self.pattern());
        Lock::new(key, Derivation::Sha256, self.name.clone(), Vec::new())
    }

    fn guesses(&self) -> Vec<Guess> {
        let pattern = parse(&self.key).expect("a pattern");
        let guesses = pattern.placeholders().filter_map(|placeholder| {
            let (ty, shape) = match self.ty(&placeholder.name()) {
                _ if placeholder.shape.is_some() => return None,
                Type::Known(_) => return None,
                Type::Newtype(ty, _) => (ty, None),
                Type::Declared(ty, shape) => (ty, Some(shape)),
            };
            Some(Guess {
                source: placeholder.source.clone(),
                ty: Some(ty.to_owned()),
                shape,
            })
        });
        guesses.collect()
    }

    fn starts_with_a_word(&self) -> bool {
        self.key.starts_with(char::is_alphanumeric)
    }
}

/// The macro's message about two of the sites, if they collide.
fn found(sites: &[Site], here: usize, there: usize) -> Option<Advice> {
    let locks: Vec<Lock> = sites.iter().map(Site::lock).collect();
    let collision = locks[here].collision(&locks[there])?;
    let item = |site: &Site| format!("fn `{}`", site.function);
    let (one, other) = (&sites[here], &sites[there]);
    let (items, guesses) = ((item(one), item(other)), (one.guesses(), other.guesses()));
    let side = |at: usize, item, guesses| Side {
        lock: &locks[at],
        written: &sites[at].key,
        item,
        word: Some(&sites[at].function),
        guesses,
    };
    let others = (0..sites.len()).filter(|at| *at != here && *at != there);
    Some(advice(
        &collision,
        &side(here, &items.0, &guesses.0),
        &side(there, &items.1, &guesses.1),
        others.map(|at| &locks[at]),
    ))
}

/// The sites with an edit written into them, as a user copies it out of the message.
fn applied(sites: &[Site], here: usize, there: usize, text: &str, edits: &[Edit]) -> Vec<Site> {
    let mut sites = sites.to_vec();
    for edit in edits {
        let site = &mut sites[if edit.is_here { here } else { there }];
        if let Some(name) = &edit.name {
            assert!(text.contains(&format!("`name = \"{name}\"`")), "{text}");
            site.name = Some(name.clone());
        }
        if let Some(key) = &edit.key {
            let whole = text.contains(&format!("`{key}`"));
            assert!(whole || is_shaped_by(&site.key, key, text), "{key}: {text}");
            site.key.clone_from(key);
        }
    }
    sites
}

/// Returns whether the new key is the old one with shapes that the text names.
fn is_shaped_by(old: &str, new: &str, text: &str) -> bool {
    let (old, new) = (parse(old).expect("a key"), parse(new).expect("a key"));
    old.parts.len() == new.parts.len()
        && old
            .placeholders()
            .zip(new.placeholders())
            .all(|(a, b)| a == b || b.path == a.path && text.contains(&format!("`<{}>`", b.source)))
}

/// Checks every suggestion for the two sites, and returns how many there were; `None` if they do
/// not collide.
fn check(sites: &[Site], here: usize, there: usize) -> Option<usize> {
    let Advice { text, options } = found(sites, here, there)?;
    let case = format!("{sites:#?}\n{here} {there}\n{text}");
    let has_word = |at: usize| sites[at].starts_with_a_word();
    for edits in &options {
        let edited = applied(sites, here, there, &text, edits);
        assert!(found(&edited, here, there).is_none(), "{case}");
        for edit in edits {
            let (changed, other) = if edit.is_here {
                (here, there)
            } else {
                (there, here)
            };
            for third in (0..sites.len()).filter(|third| *third != here && *third != there) {
                assert!(found(&edited, changed, third).is_none(), "{third}: {case}");
            }
            let texts = |site: &Site| {
                let parts = site.pattern().parts.into_iter();
                let text = |part| match part {
                    advisory_pattern::Part::Text(text) => Some(text),
                    advisory_pattern::Part::Placeholder(_) => None,
                };
                parts.filter_map(text).collect::<Vec<_>>()
            };
            // Only a word changes keys, and a key with a word of its own keeps it.
            let is_another_key = texts(&edited[changed]) != texts(&sites[changed]);
            if is_another_key && options.len() == 1 {
                let is_free = |at: usize| at != changed || !has_word(at) || has_word(other);
                assert!(is_free(changed), "{case}");
            }
        }
        for (at, (site, edited)) in sites.iter().zip(&edited).enumerate() {
            let is_meant = edits
                .iter()
                .any(|edit| at == if edit.is_here { here } else { there });
            assert!(is_meant || site.key == edited.key, "{case}");
        }
    }
    Some(options.len())
}

fn site(function: &str, key: &str, values: &[(&'static str, Type)]) -> Site {
    Site {
        key: key.to_owned(),
        name: None,
        function: function.to_owned(),
        values: values
            .iter()
            .map(|&(placeholder, ty)| Value { placeholder, ty })
            .collect(),
    }
}

const TEXT: Type = Type::Known(Shape::Text);
const TENANT: Type = Type::Declared("TenantId", Shape::Uuid);

#[test]
fn every_suggestion_for_500_random_collisions_is_right() {
    const WORDS: [&str; 6] = ["", "account:", "report:", "job-", "pay:", "slot:"];
    const ENDS: [&str; 4] = ["", ":balance", "-x", ":<b>"];
    const TYPES: [Type; 9] = [
        TEXT,
        TEXT,
        Type::Known(Shape::Int),
        Type::Known(Shape::Uuid),
        Type::Known(Shape::Date),
        TENANT,
        Type::Declared("AccountId", Shape::Int),
        Type::Newtype("Slug", Shape::Text),
        Type::Newtype("UserId", Shape::Uuid),
    ];
    const FUNCTIONS: [&str; 5] = ["book", "pay", "report", "settle", "account"];
    // The constants of Knuth's MMIX: the same pairs in every run.
    let mut state = 0x5eed_u64;
    let mut pick = |count: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).expect("31 bits") % count
    };
    let (mut collisions, mut without) = (0, 0);
    while collisions < 500 {
        let sites: Vec<Site> = (0..6)
            .map(|_| {
                let (word, end) = (WORDS[pick(WORDS.len())], ENDS[pick(ENDS.len())]);
                let values = [("a", TYPES[pick(9)]), ("b", TYPES[pick(9)])];
                site(FUNCTIONS[pick(5)], &format!("{word}<a>{end}"), &values)
            })
            .collect();
        for here in 1..sites.len() {
            for there in 0..here {
                if let Some(options) = check(&sites, here, there) {
                    collisions += 1;
                    without += usize::from(options == 0);
                }
            }
        }
    }
    assert_eq!(without, 0, "each message says something to write");
}

#[test]
fn a_newtypes_shape_comes_before_a_word() {
    let sites = [
        site(
            "book",
            "<tenant>:<slot>",
            &[("tenant", TENANT), ("slot", TEXT)],
        ),
        site("pay", "account:<id>", &[("id", TENANT)]),
    ];
    let advice = found(&sites, 1, 0).expect("`account` can be a tenant");
    assert!(advice.text.starts_with(
        "`<tenant>` is taken for any text, because the macro sees only the name of `TenantId`: write its shape, `<tenant: uuid>`, at fn `book`"
    ));
    assert!(
        advice
            .text
            .ends_with("at fn `book`, which makes it another lock: `book:<tenant>:<slot>`"),
        "{}",
        advice.text
    );
    assert_eq!(check(&sites, 1, 0), Some(2));
}

#[test]
fn two_newtypes_are_distinguished_by_both_shapes() {
    let account = Type::Declared("AccountId", Shape::Int);
    let sites = [
        site("book", "<tenant>", &[("tenant", TENANT)]),
        site("pay", "<account>", &[("account", account)]),
    ];
    let advice = found(&sites, 1, 0).expect("both are any text");
    let both = "write the shapes, `<account: int>`, and `<tenant: uuid>`, at fn `book`";
    assert!(advice.text.contains(both), "{}", advice.text);
    assert!(check(&sites, 1, 0).is_some());
}

#[test]
fn one_name_with_other_shapes_is_given_the_shapes() {
    let values = [
        ("tenant", TENANT),
        ("day", Type::Newtype("Day", Shape::Date)),
    ];
    let known = [
        ("tenant", Type::Known(Shape::Uuid)),
        ("day", Type::Known(Shape::Date)),
    ];
    let mut sites = [
        site("book", "<tenant>:<day>", &known),
        site("close", "<tenant>:<day>", &values),
    ];
    for site in &mut sites {
        site.name = Some("slot".to_owned());
    }
    for (here, there, at) in [(1, 0, "here"), (0, 1, "at fn `close`")] {
        let advice = found(&sites, here, there).expect("the shapes differ");
        let wanted = format!("write `<tenant: uuid>:<day: date>` {at}");
        assert!(advice.text.ends_with(&wanted), "{}", advice.text);
        assert_eq!(check(&sites, here, there), Some(1));
    }
}

#[test]
fn a_word_that_another_lock_has_is_not_suggested() {
    let sites = [
        site("book", "<a>:<b>", &[("a", TEXT), ("b", TEXT)]),
        site("settle", "<a>:<b>", &[("a", TEXT), ("b", TEXT)]),
        site("other", "settle:<a>:<b>", &[("a", TEXT), ("b", TEXT)]),
    ];
    let advice = found(&sites, 1, 0).expect("the same key");
    assert!(advice.text.ends_with("`a-b:<a>:<b>`"), "{}", advice.text);
    assert!(check(&sites, 1, 0).is_some());
}

#[test]
fn a_name_that_another_lock_has_is_not_suggested() {
    let mut other = site("other", "slots:<a>", &[("a", TEXT)]);
    other.name = Some("slot".to_owned());
    let slot = |function| site(function, "slot:<a>", &[("a", TEXT)]);
    let sites = [slot("create"), slot("cancel"), other];
    let advice = found(&sites, 1, 0).expect("the same key");
    assert!(
        advice.text.contains("write `name = \"a\"` at both"),
        "{}",
        advice.text
    );
    assert!(check(&sites, 1, 0).is_some());
}
