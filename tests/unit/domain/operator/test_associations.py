from isthmus.domain.operator.associations import Missing, missing
from isthmus.model.slurmdb import Association


def test_everybody_without_an_account_gets_the_one_of_all() -> None:
    known = [Association(account="root", cluster="c"), Association(account="root", cluster="c", user="root")]
    assert missing(["bob", "alice"], known, cluster="c") == Missing(account=True, users=("alice", "bob"))


def test_whoever_has_an_account_keeps_it() -> None:
    known = [
        Association(account="users", cluster="c"),
        Association(account="physics", cluster="c", user="alice"),
        Association(account="users", cluster="elsewhere", user="bob"),
    ]
    assert missing(["alice", "bob"], known, cluster="c") == Missing(account=False, users=("bob",))
    assert missing(["alice"], known, cluster="c") == Missing()


def test_no_account_is_made_for_nobody() -> None:
    assert missing([], [], cluster="c") == Missing()
