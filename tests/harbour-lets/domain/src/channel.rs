//! The channels through which guests come, and the seasons.

use advisory_runtime::KeyPart;

/// Other firms that sell our nights. The texts are in keys, so they must not change.
#[derive(Clone, Copy, Debug, KeyPart)]
pub enum Channel {
    #[key_part("bkg")]
    BookAway,
    #[key_part("nst")]
    Nestling,
    #[key_part("own")]
    OwnSite,
}

#[derive(Clone, Copy, Debug, KeyPart)]
pub enum Season {
    Winter,
    Spring,
    Summer,
    Autumn,
}
