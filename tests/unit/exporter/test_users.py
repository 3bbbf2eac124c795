from isthmus.exporter.users import UserNames
from isthmus.model.slurm import Job


def test_a_user_without_a_name_goes_by_the_id() -> None:
    assert UserNames().named(Job(1, user_id=1000, user_name="")).user_name == "1000"


def test_a_name_that_one_record_has_serves_for_all_jobs_of_the_user() -> None:
    users = UserNames()
    users.named(Job(1, user_id=1000, user_name="alice"))
    assert users.named(Job(2, user_id=1000)).user_name == "alice"
    assert users.named(Job(3, user_id=1000, user_name="1000")).user_name == "alice"


def test_a_job_without_a_user_stays_as_it_is() -> None:
    assert UserNames().named(Job(1)).user_name is None
