use super::*;
use crate::hooks::fires;

#[test]
fn points_that_are_not_armed_do_not_fire() {
    assert!(Point::ALL.into_iter().all(|point| !fires(point)));
    let armed = arm(1, &[]);
    assert!(Point::ALL.into_iter().all(|point| !fires(point)));
    drop(armed);
    assert_eq!(asked(), [0; Point::COUNT]);
}

#[test]
fn a_quarter_of_the_points_fires_in_a_quarter_of_evaluations() {
    let (mut on, mut times) = (0, 0);
    for seed in 0..4_000 {
        let armed = arm(seed, &Point::ALL);
        let before = asked();
        for point in Point::ALL {
            times += u32::from(fires(point));
        }
        let asked = asked();
        on += before.iter().zip(asked).filter(|(before, asked)| **before != *asked).count();
        drop(armed);
    }
    assert!((11_000..13_000).contains(&on), "{on} of 48,000 are on");
    assert!((2_700..3_300).contains(&times), "{times} of 48,000 fired");
    assert!(fired().iter().all(|count| *count > 0));
}

#[test]
fn a_seed_fires_the_same_twice() {
    let run = || {
        let _armed = arm(99, &Point::ALL);
        (0..200).map(|time| fires(Point::ALL[time % Point::COUNT])).collect::<alloc::vec::Vec<_>>()
    };
    assert_eq!(run(), run());
}

/// Runs a body with this point armed by many seeds. The point must fire for some of them.
pub(crate) fn with(point: Point, body: impl Fn()) {
    let mut times = 0;
    for seed in 0..400 {
        let armed = arm(seed, &[point]);
        let before = fired()[point as usize];
        body();
        let has_fired = fired()[point as usize] > before;
        drop(armed);
        times += u32::from(has_fired);
    }
    assert!(times > 0, "{point:?} never fired");
}
