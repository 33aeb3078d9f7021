//! Collisions of many sites with one key: one finding for the group, and a cost that grows with its
//! size.

use advisory_pattern::{Record, SiteCollision, site_collisions, site_collisions_between};

fn site(function: &str, key: &str) -> Record {
    Record {
        kind: "fn".into(),
        written: vec![key.into()],
        keys: vec![format!("pattern {key}")],
        derivation: "sha256".into(),
        scope: "xact".into(),
        module: "shop".into(),
        function: function.into(),
        krate: "shop".into(),
        version: "1.0.0".into(),
        ..Record::default()
    }
}

fn named(name: &str, site: Record) -> Record {
    Record {
        name: Some(name.into()),
        ..site
    }
}

/// The two functions, and how many more there are.
fn found<'a>(found: &'a SiteCollision<'_>) -> (&'a str, &'a str, usize) {
    (&found.here.function, &found.there.function, found.more)
}

/// Two thousand sites have two million pairs, each with a proof and advice: gigabytes, and minutes.
#[test]
fn many_sites_with_one_key_are_one_finding() {
    let sites: Vec<Record> = (0..2_000)
        .map(|n| site(&format!("f{n}"), &format!("job:<id{n}: int>")))
        .collect();
    let all = site_collisions(&sites).unwrap();
    assert_eq!(
        all.iter().map(found).collect::<Vec<_>>(),
        [("f1", "f0", 1_998)]
    );
    let same = sites.iter().map(|site| site.function.clone());
    let same: Vec<Record> = same.map(|name| site(&name, "job:<id: int>")).collect();
    let advice = &site_collisions(&same).unwrap()[0].advice.text;
    assert!(
        advice.contains("write `name = \"job\"` at both"),
        "{advice}"
    );
    // Of two programs, with one key that both have.
    let others: Vec<Record> = (0..2_000)
        .map(|n| site(&format!("g{n}"), "job:<id: int>"))
        .collect();
    let all = site_collisions_between(&sites, &others).unwrap();
    assert_eq!(
        all.iter().map(found).collect::<Vec<_>>(),
        [("f0", "g0", 3_998)]
    );
}

#[test]
fn two_groups_have_one_finding_with_each_other() {
    let sites = [
        named("job", site("start", "job:<id: int>")),
        named("job", site("stop", "job:<id: int>")),
        site("list", "job:<id: int>"),
        site("count", "job:<other: int>"),
        site("sweep", "<any: text>:<id: int>"),
    ];
    let all = site_collisions(&sites).unwrap();
    let expected = [
        ("count", "list", 0),
        ("list", "start", 2),
        ("sweep", "start", 1),
        ("sweep", "list", 1),
    ];
    assert_eq!(all.iter().map(found).collect::<Vec<_>>(), expected);
}

#[test]
fn a_crate_in_two_versions_adds_no_site_to_a_group() {
    let newer = |site: Record| Record {
        version: "2.0.0".into(),
        ..site
    };
    let (one, other) = (site("one", "job:<id: int>"), site("other", "job:<id: int>"));
    let sites = [one.clone(), newer(one.clone()), other, newer(one.clone())];
    let all = site_collisions(&sites).unwrap();
    assert_eq!(
        all.iter().map(found).collect::<Vec<_>>(),
        [("other", "one", 0)]
    );
    assert_eq!(
        site_collisions_between(&sites[..1], &sites[1..2])
            .unwrap()
            .len(),
        0
    );
    // Methods of two types can have one path, and are two sites.
    let twin = Record {
        line: 9,
        ..one.clone()
    };
    assert_eq!(site_collisions(&[one, twin]).unwrap().len(), 1);
}

#[test]
fn two_keys_of_one_site_do_not_collide() {
    let both = Record {
        written: vec![
            "a:<from: int>".into(),
            "a:<to: int>".into(),
            "<x: text>:<y: int>".into(),
        ],
        keys: ["a:<from: int>", "a:<to: int>", "<x: text>:<y: int>"]
            .map(|key| format!("pattern {key}"))
            .into(),
        ..site("move", "")
    };
    assert_eq!(
        site_collisions(std::slice::from_ref(&both)).unwrap().len(),
        0
    );
    let sites = [both, site("book", "a:<id: int>")];
    let all = site_collisions(&sites).unwrap();
    let expected = [("book", "move", 0), ("move", "book", 0)];
    assert_eq!(all.iter().map(found).collect::<Vec<_>>(), expected);
}

#[test]
fn two_methods_of_one_path_are_two_sites_with_all_their_keys() {
    let keys = ["a:<x: text>", "<y: text>:b"];
    let method = |line| Record {
        written: keys.map(str::to_owned).into(),
        keys: keys.map(|key| format!("pattern {key}")).into(),
        line,
        ..site("move", "")
    };
    let sites = [method(1), method(9)];
    assert_eq!(site_collisions(&sites).unwrap().len(), 3);
}

#[test]
fn functions_of_two_crates_collide_whatever_their_versions() {
    let other = Record {
        krate: "bank".into(),
        version: "2.0.0".into(),
        ..site("pay", "<x: text>:b")
    };
    let sites = [site("book", "a:<x: text>"), other];
    assert_eq!(site_collisions(&sites).unwrap().len(), 1);
}
