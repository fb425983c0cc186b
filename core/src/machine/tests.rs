use super::*;

/// The sum of what it was told.
#[derive(Default)]
struct Sum(u32);

impl Observer<u32> for Sum {
    fn on_event(&mut self, _now: Instant, event: &u32) {
        self.0 += event;
    }
}

#[test]
fn observers_by_reference_and_those_that_may_be_none_are_told_all() {
    fn tell(mut observer: impl Observer<u32>, event: u32) {
        observer.on_event(Instant::ORIGIN, &event);
        observer.on_event_in(Instant::ORIGIN, &(10 * event), &EventContext::default());
    }
    let mut sum = Sum::default();
    tell(&mut sum, 1);
    assert_eq!(sum.0, 11);
    tell(Some(&mut sum), 200);
    assert_eq!(sum.0, 2_211);
    tell(None::<&mut Sum>, 1);
    assert_eq!(sum.0, 2_211);
}
