module dayjob/tests/wire/go

go 1.19

require (
	github.com/gocraft/work v0.5.2-0.20180912175354-c85b71e20062
	github.com/gomodule/redigo v1.9.3
)

require (
	github.com/braintree/manners v0.0.0-20160418043613-82a8879fc5fd // indirect
	github.com/gocraft/web v0.0.0-20190207150652-9707327fb69b // indirect
	github.com/robfig/cron v1.2.0 // indirect
)
