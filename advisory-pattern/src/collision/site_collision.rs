//! Lock sites, of one program or of two, that can lock one key without being one lock.

use std::collections::{BTreeMap, BTreeSet};

use crate::collision::Collision;
use crate::collision::advice::{Advice, Guess, Side, advice};
use crate::collision::lock::Lock;
use crate::derivation::Derivation;
use crate::pattern::Placeholder;
use crate::pattern::key_space::KeySpace;
use crate::pattern::locked_key::split_pair_text;
use crate::pattern::parse::parse;
use crate::pattern::permit::Permits;
use crate::pattern::shape::Shape;
use crate::record::{Record, RecordError, decode_key};

/// Two sites with locks that collide, and the number of others that collide in this way.
#[derive(Clone, Debug)]
pub struct SiteCollision<'a> {
    /// One site.
    pub here: &'a Record,
    /// Its key as written.
    pub here_key: String,
    /// The other site.
    pub there: &'a Record,
    /// Its key as written.
    pub there_key: String,
    /// The number of other sites that have one of the two keys, with its name and its exceptions.
    pub more: usize,
    /// How they collide.
    pub collision: Collision,
    /// The problem.
    pub headline: String,
    /// The help.
    pub advice: Advice,
}

/// Compares every two of a program's sites.
///
/// Sites with one key collide in one way with each other, and in one way with any other site. So
/// they are one group, and two groups have one collision.
///
/// # Errors
/// The first site with keys that this version cannot read.
///
/// # Examples
///
/// ```no_run
/// use advisory_pattern::{Record, site_collisions};
///
/// let program = std::fs::read("target/release/shop")?;
/// for pair in site_collisions(&Record::find_all(&program)?)? {
///     println!("{}: {} and {}", pair.headline, pair.here.function, pair.there.function);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn site_collisions(sites: &[Record]) -> Result<Vec<SiteCollision<'_>>, RecordError> {
    let groups = groups(sites)?;
    let all = || groups.iter().filter_map(|group| group.locks.first());
    let mut collisions = Vec::new();
    for (at, here) in groups.iter().enumerate() {
        if let [first, second, more @ ..] = here.locks.as_slice() {
            collisions.extend(second.collision(first, more.len(), all));
        }
        for there in &groups[..at] {
            let pair = here.different(there, is_same_site);
            // A site can have a lock in both groups.
            let more = here.sites.union(&there.sites).count().saturating_sub(2);
            collisions.extend(pair.and_then(|(here, there)| here.collision(there, more, all)));
        }
    }
    Ok(collisions)
}

/// Compares every site of one program with every site of another that shares its database, in
/// groups as [`site_collisions`] does.
///
/// A function of a crate that both use does not collide with itself, even if its line differs.
///
/// # Errors
/// The first site with keys that this version cannot read.
pub fn site_collisions_between<'a>(
    here: &'a [Record],
    there: &'a [Record],
) -> Result<Vec<SiteCollision<'a>>, RecordError> {
    let (here, there) = (groups(here)?, groups(there)?);
    let all = || {
        here.iter()
            .chain(&there)
            .filter_map(|group| group.locks.first())
    };
    let mut collisions = Vec::new();
    for one in &here {
        for other in &there {
            let both = one.locks.iter().chain(&other.locks);
            let functions: BTreeSet<_> = both.map(|lock| code(lock.site)).collect();
            let more = functions.len().saturating_sub(2);
            let pair = one.different(other, is_same_code);
            collisions.extend(pair.and_then(|(here, there)| here.collision(there, more, all)));
        }
    }
    Ok(collisions)
}

/// Locks of one form, of different sites.
#[derive(Default)]
struct Group<'a> {
    locks: Vec<SiteLock<'a>>,
    sites: BTreeSet<*const Record>,
    /// The version of the crate in which a function was found first.
    versions: BTreeMap<Code<'a>, &'a str>,
}

impl<'a> Group<'a> {
    /// Adds the lock of another site. A crate that is linked in two versions has each of its sites
    /// twice.
    fn add(&mut self, lock: SiteLock<'a>) {
        let version = self
            .versions
            .entry(code(lock.site))
            .or_insert(&lock.site.version);
        if *version == lock.site.version && self.sites.insert(lock.site) {
            self.locks.push(lock);
        }
    }

    /// A lock of each group that are not of one site.
    fn different<'g>(
        &'g self,
        there: &'g Self,
        is_one: fn(&Record, &Record) -> bool,
    ) -> Option<(&'g SiteLock<'a>, &'g SiteLock<'a>)> {
        let (first, other) = (self.locks.first()?, there.locks.first()?);
        let here = self
            .locks
            .iter()
            .find(|here| !is_one(here.site, other.site));
        let there = || {
            there
                .locks
                .iter()
                .find(|there| !is_one(first.site, there.site))
        };
        here.map(|here| (here, other))
            .or_else(|| Some((first, there()?)))
    }
}

fn groups(sites: &[Record]) -> Result<Vec<Group<'_>>, RecordError> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut forms = BTreeMap::new();
    for site in sites {
        for (written, lock) in site.locks()? {
            let at = *forms.entry(lock.form()).or_insert(groups.len());
            if at == groups.len() {
                groups.push(Group::default());
            }
            groups[at].add(SiteLock {
                site,
                guesses: guesses(&written, &lock),
                written,
                item: format!("{} `{}`", site.kind, site.function),
                lock,
            });
        }
    }
    Ok(groups)
}

struct SiteLock<'a> {
    site: &'a Record,
    written: String,
    item: String,
    lock: Lock,
    guesses: Vec<Guess>,
}

impl<'a> SiteLock<'a> {
    /// How the two collide, and what to write instead; `all` are the locks that nothing may collide
    /// with then.
    fn collision<'l, I: Iterator<Item = &'l SiteLock<'a>>>(
        &self,
        there: &Self,
        more: usize,
        all: impl FnOnce() -> I,
    ) -> Option<SiteCollision<'a>>
    where
        'a: 'l,
    {
        let collision = self.lock.collision(&there.lock)?;
        let others = all().filter(|other| {
            !is_same_code(other.site, self.site) && !is_same_code(other.site, there.site)
        });
        let others = others.map(|other| &other.lock);
        let (one, other) = (self.side(), there.side());
        Some(SiteCollision {
            here: self.site,
            here_key: self.written.clone(),
            there: there.site,
            there_key: there.written.clone(),
            more,
            headline: collision.headline(&one, &other),
            advice: advice(&collision, &one, &other, others),
            collision,
        })
    }

    fn side(&self) -> Side<'_> {
        Side {
            lock: &self.lock,
            written: &self.written,
            item: &self.item,
            word: (self.site.kind != "macro").then_some(&self.site.function),
            guesses: &self.guesses,
        }
    }
}

/// The placeholders without a shape that are compared as text; the record does not tell their
/// types.
fn guesses(written: &str, lock: &Lock) -> Vec<Guess> {
    let written = match (lock.first_half(), split_pair_text(written)) {
        (Some(_), Some((_, second))) => second,
        _ => written,
    };
    let (Ok(written), Some(known)) = (parse(written), lock.pattern()) else {
        return Vec::new();
    };
    let placeholders = written.placeholders().zip(known.placeholders());
    let is_guess = |(written, known): &(&Placeholder, &Placeholder)| {
        written.shape.is_none() && written.filters.is_empty() && known.shape == Some(Shape::Text)
    };
    let guesses = placeholders.filter(is_guess).map(|(written, _)| Guess {
        source: written.source.clone(),
        ty: None,
        shape: None,
    });
    guesses.collect()
}

/// The identity of a function of a crate with its keys, in any version.
type Code<'a> = ([&'a str; 5], &'a [String], Option<KeySpace>);

fn code(site: &Record) -> Code<'_> {
    let Record {
        krate,
        module,
        function,
        kind,
        keys,
        derivation,
        ..
    } = site;
    let names = [krate, module, function, kind, derivation].map(String::as_str);
    (names, keys, site.key_space().ok())
}

/// Returns whether two sites are one function of one crate, with equal keys, possibly in two
/// versions.
fn is_same_code(here: &Record, there: &Record) -> bool {
    code(here) == code(there)
}

/// Returns whether two sites of one program are one: a crate can be linked in two versions.
fn is_same_site(here: &Record, there: &Record) -> bool {
    std::ptr::eq(here, there) || here.version != there.version && is_same_code(here, there)
}

impl Record {
    /// Returns the site's locks as they are compared, each with its key as written, except for keys
    /// that are unknown before run time.
    ///
    /// # Errors
    /// A key or a derivation that this version cannot read.
    pub fn locks(&self) -> Result<Vec<(String, Lock)>, RecordError> {
        let derivation = Derivation::from_name(&self.derivation)
            .ok_or_else(|| RecordError::Malformed(format!("derivation `{}`", self.derivation)))?;
        let space = self.key_space()?.under(derivation);
        let allowed: Vec<String> = self
            .allow_overlap
            .iter()
            .map(|(other, _)| other.clone())
            .collect();
        let mut locks = Vec::new();
        for (index, key) in self.keys.iter().enumerate() {
            let Some(locked) = decode_key(key)? else {
                continue;
            };
            if locked.first_half().is_some() && derivation.bits() != 32 {
                let field = format!("derivation `{}` of a pair", self.derivation);
                return Err(RecordError::Malformed(field));
            }
            let written = self.written.get(index).unwrap_or(key).clone();
            let lock = Lock::new(locked, derivation, self.name.clone(), allowed.clone());
            let permits = self.permits.clone().unwrap_or(Permits::ONE);
            let lock = lock.within(space).with_permits(permits);
            locks.push((written, lock));
        }
        Ok(locks)
    }
}
