//! Which two lock sites, of one program or of two, can lock the same key without being one lock?

use crate::advice::{Advice, Guess, Side, advice};
use crate::collision::Collision;
use crate::lock::Lock;
use crate::parse::parse;
use crate::pattern::Placeholder;
use crate::record::{Record, RecordError};
use crate::shape::Shape;

/// Holds two sites whose locks collide.
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
    /// How they collide.
    pub collision: Collision,
    /// What is wrong.
    pub headline: String,
    /// What to write instead.
    pub advice: Advice,
}

/// Compares every two of a program's sites.
///
/// # Errors
/// The first site whose keys this version cannot read.
pub fn site_collisions(sites: &[Record]) -> Result<Vec<SiteCollision<'_>>, RecordError> {
    let locks = locks(sites)?;
    let mut collisions = Vec::new();
    for (at, here) in locks.iter().enumerate() {
        for there in &locks[..at] {
            // A crate that is linked in two versions has each of its sites twice.
            let is_same_site = std::ptr::eq(here.site, there.site)
                || here.site.version != there.site.version && is_same_code(here.site, there.site);
            if !is_same_site {
                collisions.extend(here.collision(there, || locks.iter()));
            }
        }
    }
    Ok(collisions)
}

/// Compares every site of one program with every site of another that shares its database.
///
/// The same function of a crate that both use does not collide, even if its line differs.
///
/// # Errors
/// The first site whose keys this version cannot read.
pub fn site_collisions_between<'a>(
    here: &'a [Record],
    there: &'a [Record],
) -> Result<Vec<SiteCollision<'a>>, RecordError> {
    let (here, there) = (locks(here)?, locks(there)?);
    let pairs = here
        .iter()
        .flat_map(|here| there.iter().map(move |there| (here, there)));
    let different = pairs.filter(|(here, there)| !is_same_code(here.site, there.site));
    let collisions =
        different.filter_map(|(one, other)| one.collision(other, || here.iter().chain(&there)));
    Ok(collisions.collect())
}

/// A lock of a site, and its key as written.
struct SiteLock<'a> {
    site: &'a Record,
    written: String,
    item: String,
    lock: Lock,
    guesses: Vec<Guess>,
}

impl<'a> SiteLock<'a> {
    /// How the two collide, and what to write instead; `all` are the locks that nothing may collide with then.
    fn collision<'l, I: Iterator<Item = &'l SiteLock<'a>>>(
        &self,
        there: &Self,
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

/// The placeholders without a shape that are compared as text; the record does not tell their types.
fn guesses(written: &str, lock: &Lock) -> Vec<Guess> {
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

fn locks(sites: &[Record]) -> Result<Vec<SiteLock<'_>>, RecordError> {
    let mut locks = Vec::new();
    for site in sites {
        let site_locks = site.locks()?.into_iter();
        locks.extend(site_locks.map(|(written, lock)| SiteLock {
            site,
            guesses: guesses(&written, &lock),
            written,
            item: format!("{} `{}`", site.kind, site.function),
            lock,
        }));
    }
    Ok(locks)
}

/// Whether two sites are the same function of the same crate with the same keys, possibly in different versions.
fn is_same_code(here: &Record, there: &Record) -> bool {
    fn code(site: &Record) -> impl PartialEq + '_ {
        let Record {
            krate,
            module,
            function,
            kind,
            keys,
            derivation,
            ..
        } = site;
        let space = site.key_space().ok();
        (krate, module, function, kind, keys, derivation, space)
    }
    code(here) == code(there)
}
