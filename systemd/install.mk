# `make install-systemd`. With DESTDIR=… it stages the files for a package and runs nothing; a
# package also sets UNITDIR=/usr/lib/systemd/system, SYSUSERSDIR=/usr/lib/sysusers.d, and COMMAND.
DESTDIR     ?=
UNITDIR     ?= /etc/systemd/system
SYSUSERSDIR ?= /etc/sysusers.d
COMMAND     ?= /opt/ccm-supervisor/bin/ccm-supervisor
SYSTEMD     := $(dir $(lastword $(MAKEFILE_LIST)))

.PHONY: install-systemd
install-systemd: ## Install the systemd unit, its user and its flags file
	install -d -m 0755 $(DESTDIR)$(UNITDIR) $(DESTDIR)$(SYSUSERSDIR)
	install -d -m 0700 $(DESTDIR)/etc/ccm-supervisor
	install -m 0644 $(SYSTEMD)ccm-supervisor.service $(DESTDIR)$(UNITDIR)
	sed -i 's|^ExecStart=[^ ]*|ExecStart=$(COMMAND)|' $(DESTDIR)$(UNITDIR)/ccm-supervisor.service
	install -m 0644 $(SYSTEMD)ccm-supervisor.sysusers $(DESTDIR)$(SYSUSERSDIR)/ccm-supervisor.conf
	test -e $(DESTDIR)/etc/ccm-supervisor/ccm-supervisor.env || \
	  install -m 0600 $(SYSTEMD)ccm-supervisor.env $(DESTDIR)/etc/ccm-supervisor
ifeq ($(DESTDIR),)
	systemd-sysusers $(SYSUSERSDIR)/ccm-supervisor.conf
	systemctl daemon-reload
endif
